/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers that no CPU has, for reading what the model of the caches counted in the domain of a CPU, since boot.
 * tests/kernel/cachemodel reads them.
 */
#ifndef RDT_WINDOW_H
#define RDT_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "hierarchy.h"
#include "options.h"

enum {
    WINDOW_COUNTS = 0x52450000, /* 16 of each RMID: 4 * kind + served, and those below */
    WINDOW_WAYS = 0x52460000,   /* 32 of each RMID: bytes held in each way of the L3 */
    /* As many of each RMID as there are: lines that left the L3 for its, by whose they were. */
    WINDOW_EVICTIONS = 0x52500000,
};

/* In the gaps that 4 * kind + served leaves. */
enum { COUNT_INSTRUCTIONS = 3, COUNT_WRITEBACKS = 7, COUNT_OCCUPANCY = 11, COUNT_WAITED_NS = 15, COUNTS = 16 };

bool window_ours(const struct options *o, uint32_t msr);
uint64_t window_read(struct hierarchy *h, unsigned domain, uint32_t msr);

/* One of an RMID's COUNTS. */
uint64_t window_count(const struct hierarchy *h, unsigned domain, unsigned rmid, unsigned which);

#endif
