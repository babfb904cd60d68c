/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a CPU stands still: for what its accesses take, and for the limit of its class on memory bandwidth.
 *
 * It does so now and then and not for each line, since the shortest sleep takes longer than a line from memory. What it
 * slept too long counts for the next time. So times are right over a second, and not over less than STALL_GRAIN_NS.
 */
#ifndef RDT_STALL_H
#define RDT_STALL_H

#include <stdbool.h>
#include <stdint.h>

#include "machine.h"

#define STALL_GRAIN_NS 200000ull

/*
 * Who has had all his cycles is all but still: he sleeps so long for each line that his L2 lacks. The kernel does not,
 * so that it can take him off the CPU.
 */
#define STALL_SPENT_NS 1000000ull

/* Time that a CPU owes: less than 0 if it slept too long. */
struct debt {
    int64_t owed_ns;
};

/* Owe some more. Returns for how long to sleep, 0 for not yet. */
uint64_t debt_owe(struct debt *d, uint64_t ns);
void debt_slept(struct debt *d, uint64_t ns);

/* Lines that come at most so often. */
struct pace {
    uint64_t next_ns; /* when the next one may */
};

/*
 * Take some bytes at a rate of bytes a second. Returns for how long to sleep, 0 for not at all. Who sleeps as told
 * takes, in any time t, no more than rate * (t + 2 * STALL_GRAIN_NS) bytes and what is taken at once.
 */
uint64_t pace_take(struct pace *p, uint64_t now_ns, uint64_t bytes, uint64_t rate);

/*
 * Bytes a second that the class on a CPU may have from memory, 0 for any number. With Intel's MBA that is of each CPU
 * (SDM 17.19.7: throttling is applied to a core), with AMD's of all CPUs of the domain together (APM 19, L3 External
 * Bandwidth Enforcement).
 */
uint64_t stall_limit(const struct machine *m, unsigned cpu);

/*
 * Whether the RMID that a CPU runs under has had all cycles that it may have (CONTROL_CYCLES). They are those of the
 * performance counters, of all CPUs of the domain. Instructions count once they were charged: when the CPU goes on with
 * another RMID, and when an RMID's counts are read.
 */
bool stall_is_spent(const struct machine *m, const struct hierarchy *h, unsigned cpu);

#endif
