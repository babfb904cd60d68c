/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers that no CPU has: a test in the guest writes them (through /dev/cpu/N/msr) to have the counters of CPU N's
 * L3 misbehave. tests/kernel/inside/msr.py has a function for each.
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
    CONTROL_MARK = 0x52440010,        /* value: anything; only seen in the log */
};

bool control_ours(uint32_t msr);
void control_write(struct domain *d, uint32_t msr, uint64_t value);

#endif
