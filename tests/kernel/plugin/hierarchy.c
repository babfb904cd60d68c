/* SPDX-License-Identifier: Apache-2.0 */
#include "hierarchy.h"

#include <stdlib.h>

/* A CPU's own counts are written by its thread alone, and read by others. */
static void count(uint64_t *counter, uint64_t more)
{
    __atomic_store_n(counter, *counter + more, __ATOMIC_RELAXED);
}

static uint64_t look(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

bool hierarchy_make(struct hierarchy *h, unsigned cpus, unsigned domains, unsigned rmids)
{
    bool good;

    *h = (struct hierarchy){ .cpus = cpus, .domains = domains, .rmids = rmids };
    h->l2 = calloc(cpus, sizeof *h->l2);
    h->l3 = calloc(domains, sizeof *h->l3);
    good = h->l2 && h->l3;
    for (unsigned i = 0; good && i < cpus; i++)
        good = (h->l2[i].tallies = calloc(rmids, sizeof(struct tally)));
    for (unsigned i = 0; good && i < domains; i++) {
        for (unsigned k = 0; k < L3_LOCKS; k++)
            pthread_mutex_init(&h->l3[i].locks[k], NULL);
        good = (h->l3[i].shares = calloc(rmids, sizeof(struct share)));
    }
    if (!good)
        hierarchy_free(h);
    return good;
}

void hierarchy_free(struct hierarchy *h)
{
    hierarchy_without_caches(h);
    for (unsigned i = 0; h->l2 && i < h->cpus; i++)
        free(h->l2[i].tallies);
    for (unsigned i = 0; h->l3 && i < h->domains; i++) {
        free(h->l3[i].shares);
        evictions_free(&h->l3[i].evictions);
        distances_free(&h->l3[i].distances);
    }
    free(h->l2);
    free(h->l3);
    *h = (struct hierarchy){ 0 };
}

bool hierarchy_extra(struct hierarchy *h, const struct extra *extra)
{
    bool good = true;

    for (unsigned i = 0; good && i < h->domains; i++) {
        struct evictions *evictions = &h->l3[i].evictions;
        struct distances *distances = &h->l3[i].distances;

        if (!extra->evictions)
            evictions_free(evictions);
        else if (!evictions->lines)
            good = evictions_make(evictions, h->rmids);
        if (distances->most != extra->curves)
            distances_free(distances);
        if (good && extra->curves && !distances->counts)
            good = distances_make(distances, h->rmids, extra->curves);
    }
    return good;
}

void hierarchy_without_caches(struct hierarchy *h)
{
    for (unsigned i = 0; h->l2 && i < h->cpus; i++)
        cache_free(&h->l2[i].cache);
    for (unsigned i = 0; h->l3 && i < h->domains; i++) {
        cache_free(&h->l3[i].cache);
        for (unsigned r = 0; h->l3[i].shares && r < h->rmids; r++)
            h->l3[i].shares[r].lines = 0;
    }
}

bool hierarchy_caches(struct hierarchy *h, const struct geometry *g)
{
    bool good = true;

    hierarchy_without_caches(h);
    h->geometry = *g;
    for (unsigned i = 0; good && i < h->cpus; i++)
        good = cache_make(&h->l2[i].cache, g->l2_sets, g->l2_ways, g->sample);
    for (unsigned i = 0; good && i < h->domains; i++) {
        good = cache_make(&h->l3[i].cache, g->l3_sets, g->l3_ways, g->sample);
        distances_empty(&h->l3[i].distances, h->l3[i].cache.simulated, g->l3_ways);
    }
    return good;
}

/* Shares change under the lock of whichever set. */
static void held(struct l3 *l3, unsigned rmid, int64_t more)
{
    __atomic_fetch_add(&l3->shares[rmid].lines, more, __ATOMIC_RELAXED);
}

static void written(struct l3 *l3, unsigned rmid, uint64_t weight)
{
    __atomic_fetch_add(&l3->shares[rmid].writebacks, weight, __ATOMIC_RELAXED);
}

static pthread_mutex_t *lock_of(struct l3 *l3, uint32_t set)
{
    return &l3->locks[set % L3_LOCKS];
}

/* A line that has left the L3. Returns whether memory was written. */
static bool gone_from_l3(struct l3 *l3, const struct line *line, uint64_t weight)
{
    held(l3, line->rmid, -(int64_t)weight);
    if (line->dirty)
        written(l3, line->rmid, weight);
    return line->dirty;
}

/* A changed line that an L2 gives up. Returns whether memory was written. */
static bool write_back(struct l3 *l3, const struct line *line, uint64_t weight)
{
    uint32_t set = cache_set(&l3->cache, line->number);
    struct line *there;

    pthread_mutex_lock(lock_of(l3, set));
    there = cache_find(&l3->cache, set, line->number);
    if (there)
        there->dirty = true;
    else
        written(l3, line->rmid, weight);
    pthread_mutex_unlock(lock_of(l3, set));
    return !there;
}

static struct outcome read_l3(struct l3 *l3, const struct access *a, uint64_t weight)
{
    struct outcome outcome = { FROM_L3, 0 };
    uint32_t set = cache_set(&l3->cache, a->number);
    struct line *there;

    pthread_mutex_lock(lock_of(l3, set));
    there = cache_find(&l3->cache, set, a->number);
    if (there && there->rmid != a->rmid)
        distances_found(&l3->distances, a->rmid, weight);
    else
        distances_access(&l3->distances, a->rmid, set, a->number, weight);
    if (there) {
        cache_use(&l3->cache, set, there);
    } else {
        struct line line = { .number = a->number, .rmid = a->rmid };
        struct line gone = cache_fill(&l3->cache, set, line, a->l3_mask);

        outcome.served = FROM_MEMORY;
        if (gone.number != a->number)
            held(l3, a->rmid, weight);
        if (gone.number != a->number && gone.number != NO_LINE) {
            outcome.written = gone_from_l3(l3, &gone, weight);
            evictions_count(&l3->evictions, a->rmid, gone.rmid, weight);
        }
    }
    pthread_mutex_unlock(lock_of(l3, set));
    return outcome;
}

struct outcome hierarchy_access(struct hierarchy *h, const struct access *a)
{
    struct l2 *l2 = &h->l2[a->cpu];
    struct l3 *l3 = &h->l3[a->domain];
    bool dirty = a->kind == STORE;
    uint32_t set = cache_set(&l2->cache, a->number);
    struct line *there = cache_find(&l2->cache, set, a->number);
    uint64_t weight = 1ull << h->geometry.sample;
    struct outcome outcome = { FROM_L2, 0 };

    if (there) {
        cache_use(&l2->cache, set, there);
        there->dirty |= dirty;
    } else {
        struct line line = { .number = a->number, .rmid = a->rmid, .dirty = dirty }, gone;

        outcome = read_l3(l3, a, weight);
        /* If the L2 has no way for it, it is the line itself that goes. */
        gone = cache_fill(&l2->cache, set, line, a->l2_mask);
        if (gone.number != NO_LINE && gone.dirty)
            outcome.written += write_back(l3, &gone, weight);
    }
    count(&l2->tallies[a->rmid].served[a->kind][outcome.served], weight);
    return outcome;
}

void hierarchy_executed(struct hierarchy *h, unsigned cpu, unsigned rmid, uint64_t instructions)
{
    count(&h->l2[cpu].tallies[rmid].instructions, instructions);
}

void hierarchy_waited(struct hierarchy *h, unsigned cpu, unsigned rmid, uint64_t ns)
{
    count(&h->l2[cpu].tallies[rmid].waited_ns, ns);
}

void hierarchy_flush(struct hierarchy *h, unsigned cpu, unsigned domain)
{
    struct cache *l2 = &h->l2[cpu].cache;
    struct l3 *l3 = &h->l3[domain];
    uint64_t weight = 1ull << h->geometry.sample;

    for (size_t i = 0; i < (size_t)l2->simulated * l2->ways; i++) {
        if (l2->lines[i].number != NO_LINE && l2->lines[i].dirty)
            write_back(l3, &l2->lines[i], weight);
        l2->lines[i].number = NO_LINE;
    }
    for (uint32_t set = 0; l3->cache.ways && set < l3->cache.simulated; set++) {
        struct line *ways = cache_ways(&l3->cache, set);

        pthread_mutex_lock(lock_of(l3, set));
        for (unsigned i = 0; i < l3->cache.ways; i++) {
            if (ways[i].number != NO_LINE)
                gone_from_l3(l3, &ways[i], weight);
            ways[i].number = NO_LINE;
        }
        distances_forget(&l3->distances, set);
        pthread_mutex_unlock(lock_of(l3, set));
    }
}

struct tally hierarchy_tally(const struct hierarchy *h, unsigned domain, unsigned rmid)
{
    struct tally sum = { 0 };

    for (unsigned cpu = 0; cpu < h->cpus; cpu++) {
        const struct tally *t = &h->l2[cpu].tallies[rmid];

        if (cpu / (h->cpus / h->domains) != domain)
            continue;
        for (unsigned kind = 0; kind < KINDS; kind++)
            for (unsigned served = 0; served < SERVERS; served++)
                sum.served[kind][served] += look(&t->served[kind][served]);
        sum.instructions += look(&t->instructions);
        sum.waited_ns += look(&t->waited_ns);
    }
    return sum;
}

struct share hierarchy_share(const struct hierarchy *h, unsigned domain, unsigned rmid)
{
    const struct share *s = &h->l3[domain].shares[rmid];

    return (struct share){ look(&s->lines), look(&s->writebacks) };
}

uint64_t hierarchy_traffic(const struct hierarchy *h, unsigned domain, unsigned rmid)
{
    struct tally t = hierarchy_tally(h, domain, rmid);
    uint64_t lines = hierarchy_share(h, domain, rmid).writebacks;

    for (unsigned kind = 0; kind < KINDS; kind++)
        lines += t.served[kind][FROM_MEMORY];
    return lines * LINE;
}

uint64_t hierarchy_evicted(const struct hierarchy *h, unsigned domain, unsigned by, unsigned of)
{
    return evictions_of(&h->l3[domain].evictions, by, of);
}

uint64_t hierarchy_distance(const struct hierarchy *h, unsigned domain, unsigned rmid, unsigned distance)
{
    return distances_of(&h->l3[domain].distances, rmid, distance);
}

uint64_t hierarchy_held_in_way(struct hierarchy *h, unsigned domain, unsigned rmid, unsigned way)
{
    struct l3 *l3 = &h->l3[domain];
    uint64_t lines = 0;

    if (way >= l3->cache.ways)
        return 0;
    for (uint32_t set = 0; set < l3->cache.simulated; set++) {
        const struct line *line = &cache_ways(&l3->cache, set)[way];

        lines += line->number != NO_LINE && line->rmid == rmid;
    }
    return lines * LINE << h->geometry.sample;
}
