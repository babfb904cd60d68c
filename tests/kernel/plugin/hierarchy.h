/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of the caches: an L2 of each CPU, an L3 of each domain, memory behind. It says where an access is served
 * from, and counts that, and what memory is written, by RMID; if it is told to, also whose lines went for whose.
 *
 * An access looks into its CPU's L2, then into the domain's L3, then goes to memory. What a cache on this way lacked is
 * brought into it, by its own mask. What goes from the L3 may stay in an L2. What goes from an L2 having been changed
 * changes the line in the L3, or is written to memory where the L3 lacks it. Nothing is kept coherent: what one CPU
 * changes stays in the others' L2. A line in the L3 is of the RMID that it was brought in under, until it goes.
 *
 * Nothing here knows of QEMU; masks come with each access. Accesses of different CPUs may come from threads of their
 * own; to make, to empty and to free needs them to stand still.
 */
#ifndef RDT_HIERARCHY_H
#define RDT_HIERARCHY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache.h"
#include "evictions.h"

enum kind { LOAD, STORE, FETCH, KINDS };
enum served { FROM_L2, FROM_L3, FROM_MEMORY, SERVERS };

enum { L3_LOCKS = 64 };

struct geometry {
    uint32_t l2_sets, l3_sets; /* multiples of PAGE_LINES if sample > 0 */
    unsigned l2_ways, l3_ways; /* 0: there is no such cache */
    unsigned sample;
};

/* Of an RMID on a CPU. Accesses are numbers of all sets: what is seen in a sample is multiplied. */
struct tally {
    uint64_t served[KINDS][SERVERS];
    uint64_t instructions;
    uint64_t waited_ns;
};

/* Of an RMID in a domain. */
struct share {
    uint64_t lines;      /* held in the L3 */
    uint64_t writebacks; /* lines written to memory that had been brought in under it */
};

struct l2 {
    struct cache cache;
    struct tally *tallies;
};

struct l3 {
    struct cache cache;
    pthread_mutex_t locks[L3_LOCKS]; /* of the sets */
    struct share *shares;
    struct evictions evictions; /* of lines of the L3 by fills */
};

/* What is counted beside that. */
struct extra {
    bool evictions;
};

struct hierarchy {
    struct geometry geometry;
    unsigned cpus, domains, rmids;
    struct l2 *l2; /* by CPU */
    struct l3 *l3; /* by domain */
};

struct access {
    unsigned cpu, domain, rmid;
    enum kind kind;
    uint64_t number; /* the line; of a simulated set */
    uint64_t l2_mask, l3_mask;
};

/* Of an access. */
struct outcome {
    enum served served;
    unsigned written; /* lines that memory was written for it; of simulated sets */
};

/* Counts, without caches. Returns whether there was memory. CPUs are dealt out to domains evenly, in order. */
bool hierarchy_make(struct hierarchy *h, unsigned cpus, unsigned domains, unsigned rmids);
void hierarchy_free(struct hierarchy *h);

/*
 * Have more counted, from nothing on, or no longer; what goes on is not begun anew. Returns whether there was memory.
 */
bool hierarchy_extra(struct hierarchy *h, const struct extra *extra);

/* Empty caches in place of those that were, if any; counts go on. Returns whether there was memory. */
bool hierarchy_caches(struct hierarchy *h, const struct geometry *g);

/* Take the caches away. */
void hierarchy_without_caches(struct hierarchy *h);

/* The RMID must be one of those there are. */
struct outcome hierarchy_access(struct hierarchy *h, const struct access *a);

/* More of what is counted by the way; a CPU's by one thread at a time. */
void hierarchy_executed(struct hierarchy *h, unsigned cpu, unsigned rmid, uint64_t instructions);
void hierarchy_waited(struct hierarchy *h, unsigned cpu, unsigned rmid, uint64_t ns);

/* WBINVD: write back what a CPU's L2 and its domain's L3 have changed, and empty them. */
void hierarchy_flush(struct hierarchy *h, unsigned cpu, unsigned domain);

/* Sums over the CPUs of a domain. */
struct tally hierarchy_tally(const struct hierarchy *h, unsigned domain, unsigned rmid);

struct share hierarchy_share(const struct hierarchy *h, unsigned domain, unsigned rmid);

/* Bytes in and out of memory. */
uint64_t hierarchy_traffic(const struct hierarchy *h, unsigned domain, unsigned rmid);

/* Lines of an RMID that left an L3 for those that another brought in; 0 where that is not counted. */
uint64_t hierarchy_evicted(const struct hierarchy *h, unsigned domain, unsigned by, unsigned of);

/* Bytes that an RMID holds in one way of an L3, counted line by line. */
uint64_t hierarchy_held_in_way(struct hierarchy *h, unsigned domain, unsigned rmid, unsigned way);

#endif
