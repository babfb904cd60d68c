/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers that no CPU has: a test in the guest writes them (through /dev/cpu/N/msr) to have the counters of CPU N's
 * L3 misbehave, which tests/kernel/inside/msr.py has a function for each for, or to have the caches modelled, which
 * tests/kernel/cachemodel does.
 */
#ifndef RDT_CONTROL_H
#define RDT_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "machine.h"

enum {
    CONTROL_UNAVAILABLE = 0x52440001, /* value: an RMID; IA32_QM_CTR says "Unavailable" for it */
    CONTROL_ERROR = 0x52440002,       /* value: an RMID; IA32_QM_CTR says "Error" for it */
    CONTROL_NORMAL = 0x52440003,      /* value: an RMID; numbers again. After "Unavailable" its traffic counts from 0 */
    CONTROL_TRAFFIC = 0x52440004,     /* value: RMID << 48 | bytes to add to total and local traffic */
    CONTROL_OCCUPANCY = 0x52440005,   /* value: RMID << 48 | bytes that it occupies now */
    CONTROL_MARK = 0x52440010,        /* value: anything; seen in the log. Read: MARKED and the CPU's association then */
    CONTROL_CACHE = 0x52440020,       /* value: an enum turn. Read: bit 0, whether modelled; 63:8, turns so far */
    CONTROL_SAMPLE,                   /* from here on the options of these names; all are the same on all CPUs */
    CONTROL_L2SIZE,
    CONTROL_L3_NS,
    CONTROL_MEMORY_NS,
    CONTROL_BANDWIDTH,
    CONTROL_MBA_UNIT,
    CONTROL_EVICTIONS,
    CONTROL_CURVES,
    CONTROL_CHANNEL,
    CONTROL_LAST = CONTROL_CHANNEL,
    /* One of each RMID: value: cycles in the CPU's domain since boot, behind which its programs stand still; 0: never */
    CONTROL_CYCLES = 0x52441000,
};

#define MARKED (1ull << 63) /* no association has it: CLOSIDs are small */

/*
 * What is to become of the model: sample, L2 and what is counted are as the options are when it is turned on, with empty
 * caches.
 */
enum turn { TURN_OFF, TURN_ON, TURN_EMPTY, TURN_REPORT, TURNS };

bool control_ours(uint32_t msr);

/* Whether it is one of the registers from CONTROL_CYCLES on. */
bool control_of_cycles(const struct options *o, uint32_t msr);

/* The option that is behind a register, NULL for the other registers. */
const char *control_option(uint32_t msr);

void control_write(struct domain *d, uint32_t msr, uint64_t value);

#endif
