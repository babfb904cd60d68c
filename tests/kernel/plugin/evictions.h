/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who evicted whom: how many lines of one RMID left a cache because another one, or the same, brought in a line.
 *
 * There is a number for each two RMIDs, 8 * RMIDs^2 bytes: 2 MiB for 512. Untouched pages of it take no memory, and the
 * evictions by an RMID are side by side. So the memory that it takes grows with the RMIDs that evict.
 */
#ifndef RDT_EVICTIONS_H
#define RDT_EVICTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct evictions {
    unsigned rmids;
    uint64_t *lines; /* NULL: nothing is counted */
};

/* Nothing evicted so far. Returns whether there was memory. */
bool evictions_make(struct evictions *e, unsigned rmids);
void evictions_free(struct evictions *e);

/* Lines of an RMID went for a fill by another. Threads may call it at the same time. */
void evictions_count(struct evictions *e, unsigned by, unsigned of, uint64_t lines);

/* 0 where nothing is counted, and of RMIDs that there are not. */
uint64_t evictions_of(const struct evictions *e, unsigned by, unsigned of);

#endif
