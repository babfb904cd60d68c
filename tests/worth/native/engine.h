/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPUs that run loads of generated accesses over the plugin's caches, in a time of their own: no QEMU, no guest.
 *
 * Each CPU has a clock. The CPU whose clock is behind makes the next access. So accesses come to the caches and to the
 * channel in the order of time, as if all CPUs ran at once, and the same machine does the same each time.
 *
 * An access takes the cycles of its instructions, and in addition those of where it is served from. What comes from
 * memory, and what is written to it, goes through the channel first. A load may have some lines underway at once: its
 * CPU waits only for the one that is as many lines back.
 */
#ifndef NATIVE_ENGINE_H
#define NATIVE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stream.h"

struct timing {
    double hz;                                 /* cycles of a second */
    double bytes_per_cycle;                    /* of the channel; 0: as many as there are */
    uint32_t l2_cycles, l3_cycles, memory_cycles; /* that a line from there takes beside its instructions */
    uint64_t slice;                            /* cycles after which tasks of one CPU take turns */
};

/* Of an RMID on the CPUs of a domain, since the machine was made. */
struct counted {
    uint64_t instructions, cycles;
    uint64_t references, misses; /* of the L3 */
    uint64_t occupancy, total, local; /* bytes: held, and moved from and to memory */
    uint64_t writebacks;         /* lines */
    uint64_t queued;             /* cycles that its lines waited for others at the channel */
    uint64_t throttled;          /* cycles that CPUs stood still for its class's limit */
};

/* Of a task, since it was made. */
struct progress {
    uint64_t accesses, instructions, cycles;
};

struct eviction {
    uint32_t by, of;
    uint64_t lines;
};

struct engine;

/* The arguments are the plugin's (options.h). Returns NULL, and in error why, if they are not good. */
struct engine *engine_make(unsigned cpus, const struct timing *timing, int argc, char **argv, char *error, size_t size);
void engine_free(struct engine *e);

/* More of a task: its loads take turns. Returns its number, -1 if there is no memory. */
int engine_start(struct engine *e, unsigned cpu, unsigned rmid, unsigned clos, uint64_t seed, bool scattered,
                 const struct load *loads, unsigned count);

/* Have a task do something else with the same memory. Returns whether there was memory. */
bool engine_load(struct engine *e, unsigned task, const struct load *loads, unsigned count);
void engine_assign(struct engine *e, unsigned task, unsigned cpu, unsigned rmid, unsigned clos);
void engine_stop(struct engine *e, unsigned task, bool stopped);

/* Write a register of RDT, as a kernel does. */
void engine_wrmsr(struct engine *e, unsigned cpu, uint32_t msr, uint64_t value);

/* Run for so many cycles. */
void engine_run(struct engine *e, uint64_t cycles);

void engine_counted(const struct engine *e, unsigned domain, unsigned rmid, struct counted *counted);
void engine_progress(const struct engine *e, unsigned task, struct progress *progress);

/* Who evicted whom. Returns how many there are; the first ones, at most room, are put there. */
size_t engine_evictions(const struct engine *e, unsigned domain, struct eviction *evictions, size_t room);

#endif
