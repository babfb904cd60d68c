/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One set-associative cache whose ways can be divided: a line is found in any way of its set, and brought in only into
 * the ways of a mask (SDM 17.19.2), there into an empty one or else in place of the one not used for longest.
 *
 * A line of memory is its address less the 6 bits within the line; its set is that number modulo the sets.
 *
 * With a sample of n > 0, 1 of 2^n sets is simulated: those of certain places in a page. Since the number of sets is a
 * multiple of the lines of a page, the place in the page decides whether a line's set is among them, in every cache
 * alike, and a simulated set sees just what it would see if all were.
 */
#ifndef RDT_CACHE_H
#define RDT_CACHE_H

#include <stdbool.h>
#include <stdint.h>

enum { LINE_BITS = 6, LINE = 1 << LINE_BITS, PAGE_LINES = 64, MAX_SAMPLE = 5 };

#define NO_LINE UINT64_MAX

struct line {
    uint64_t number; /* NO_LINE: the way is empty */
    uint32_t used;   /* the set's clock when it was used last */
    uint16_t rmid;   /* under which it was brought in */
    bool dirty;
};

struct cache {
    unsigned sample;
    unsigned ways;      /* 0: there is no such cache */
    uint64_t places;    /* sample_places(sample) */
    uint32_t sets;      /* of the cache; a multiple of PAGE_LINES if sample > 0 */
    uint32_t simulated; /* of these */
    struct line *lines; /* way by way, set by set */
    uint32_t *clocks;
};

/* Whether a line belongs to a simulated set, as a mask of the places in a page. */
uint64_t sample_places(unsigned sample);

/* An empty cache. Returns whether there was memory. */
bool cache_make(struct cache *c, uint32_t sets, unsigned ways, unsigned sample);
void cache_free(struct cache *c);

/* The set of a line, counted among the simulated ones. */
uint32_t cache_set(const struct cache *c, uint64_t number);

/* The ways of a set. */
struct line *cache_ways(const struct cache *c, uint32_t set);

/* The line in its set, NULL where it is not held. It counts as used only by cache_use. */
struct line *cache_find(const struct cache *c, uint32_t set, uint64_t number);
void cache_use(struct cache *c, uint32_t set, struct line *line);

/*
 * Bring a line, which is not held, into its set. Returns what had to go for it: its number is NO_LINE if nothing had
 * to, and the line's own if the mask has no way, so that nothing came in.
 */
struct line cache_fill(struct cache *c, uint32_t set, struct line line, uint64_t mask);

#endif
