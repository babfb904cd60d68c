/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many ways of a cache an RMID would need: for each of its accesses, how many other lines of the set it accessed
 * since it accessed this one (Mattson's stack distance, 1970).
 *
 * With w ways for itself alone, in place of which the line not used for longest goes, an RMID lacks just the lines whose
 * distance is w or more, and those that it accesses for the first time. So one pass says what it would miss with each
 * number of ways.
 *
 * Lines that another RMID brought in are found whatever ways this one has, and take none of them: a VM and the host share
 * the host's kernel. So an access that finds such a line is one of distance 0, and moves no other line away.
 *
 * An RMID has a directory of its own, of as many sets and ways as the cache: 8 bytes for each line of the simulated
 * sets. Only so many RMIDs as are asked for have one, the first that access the cache.
 */
#ifndef RDT_DISTANCES_H
#define RDT_DISTANCES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { MAX_WAYS = 32, DISTANCES = MAX_WAYS + 1, BEYOND = MAX_WAYS };

struct distances {
    unsigned rmids;
    unsigned most, made; /* directories */
    unsigned ways;
    uint32_t sets;
    uint64_t **directories; /* by RMID: the lines of each set, the one that was used last first; NULL: nothing counted */
    uint64_t *counts;       /* by RMID and distance; BEYOND: it is not less than the ways, or there is none */
    pthread_mutex_t lock;   /* of making directories */
};

/* Nothing counted so far. Returns whether there was memory. */
bool distances_make(struct distances *d, unsigned rmids, unsigned most);
void distances_free(struct distances *d);

/* Forget all lines, for a cache of this size; counts go on. No access may be under way. */
void distances_empty(struct distances *d, uint32_t sets, unsigned ways);

/* An access to the cache, which counts as so many. Accesses to one set come one at a time. */
void distances_access(struct distances *d, unsigned rmid, uint32_t set, uint64_t number, uint64_t weight);

/* An access that found a line which another RMID brought in: it takes none of this RMID's ways, however many it has. */
void distances_found(struct distances *d, unsigned rmid, uint64_t weight);

/* The cache has lost all lines of a set. */
void distances_forget(struct distances *d, uint32_t set);

/* Accesses of a distance, or BEYOND; 0 where nothing is counted, and of RMIDs and distances that there are not. */
uint64_t distances_of(const struct distances *d, unsigned rmid, unsigned distance);

#endif
