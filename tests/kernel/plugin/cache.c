/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <stdlib.h>

/*
 * The places in an order without regularity (a permutation: the factor is odd), so that neither every n-th line nor the
 * pages' beginnings are all there is. A finer sample is part of a coarser one.
 */
static unsigned place(unsigned rank)
{
    return (rank * 37 + 11) % PAGE_LINES;
}

uint64_t sample_places(unsigned sample)
{
    uint64_t places = 0;

    for (unsigned rank = 0; rank < (unsigned)PAGE_LINES >> sample; rank++)
        places |= 1ull << place(rank);
    return places;
}

bool cache_make(struct cache *c, uint32_t sets, unsigned ways, unsigned sample)
{
    *c = (struct cache){ .sample = sample, .ways = ways, .sets = sets, .simulated = sets >> sample };
    c->places = sample_places(sample);
    if (!ways)
        return true;
    c->lines = malloc((size_t)c->simulated * ways * sizeof *c->lines);
    c->clocks = calloc(c->simulated, sizeof *c->clocks);
    if (!c->lines || !c->clocks) {
        cache_free(c);
        return false;
    }
    for (size_t i = 0; i < (size_t)c->simulated * ways; i++)
        c->lines[i] = (struct line){ .number = NO_LINE };
    return true;
}

void cache_free(struct cache *c)
{
    free(c->lines);
    free(c->clocks);
    *c = (struct cache){ 0 };
}

uint32_t cache_set(const struct cache *c, uint64_t number)
{
    uint32_t set;

    if (!c->ways)
        return 0;
    set = number % c->sets;
    if (!c->sample)
        return set;
    return set / PAGE_LINES * (PAGE_LINES >> c->sample) +
           __builtin_popcountll(c->places & ((1ull << set % PAGE_LINES) - 1));
}

struct line *cache_ways(const struct cache *c, uint32_t set)
{
    return &c->lines[(size_t)set * c->ways];
}

struct line *cache_find(const struct cache *c, uint32_t set, uint64_t number)
{
    struct line *ways = cache_ways(c, set);

    for (unsigned i = 0; i < c->ways; i++)
        if (ways[i].number == number)
            return &ways[i];
    return NULL;
}

void cache_use(struct cache *c, uint32_t set, struct line *line)
{
    line->used = ++c->clocks[set];
}

/* Clocks wrap, so ages are compared and not times. */
static struct line *victim(struct line *ways, unsigned count, uint64_t mask, uint32_t now)
{
    struct line *oldest = NULL;

    for (unsigned i = 0; i < count; i++) {
        if (!(mask >> i & 1))
            continue;
        if (ways[i].number == NO_LINE)
            return &ways[i];
        if (!oldest || now - ways[i].used > now - oldest->used)
            oldest = &ways[i];
    }
    return oldest;
}

struct line cache_fill(struct cache *c, uint32_t set, struct line line, uint64_t mask)
{
    struct line *place, gone;

    place = c->ways ? victim(cache_ways(c, set), c->ways, mask, c->clocks[set]) : NULL;
    if (!place)
        return line;
    gone = *place;
    *place = line;
    cache_use(c, set, place);
    return gone;
}
