/* SPDX-License-Identifier: Apache-2.0 */
#include "distances.h"

#include <stdlib.h>
#include <string.h>

#include "cache.h"

bool distances_make(struct distances *d, unsigned rmids, unsigned most)
{
    *d = (struct distances){ .rmids = rmids, .most = most };
    pthread_mutex_init(&d->lock, NULL);
    d->directories = calloc(rmids, sizeof *d->directories);
    d->counts = calloc((size_t)rmids * DISTANCES, sizeof *d->counts);
    if (d->directories && d->counts)
        return true;
    distances_free(d);
    return false;
}

void distances_free(struct distances *d)
{
    if (d->directories)
        distances_empty(d, 0, 0);
    free(d->directories);
    free(d->counts);
    *d = (struct distances){ 0 };
}

void distances_empty(struct distances *d, uint32_t sets, unsigned ways)
{
    for (unsigned i = 0; d->directories && i < d->rmids; i++) {
        free(d->directories[i]);
        d->directories[i] = NULL;
    }
    d->made = 0;
    d->sets = sets;
    d->ways = ways;
}

/* Returns NULL if no more may have one, or there is no memory. */
static uint64_t *make_directory(struct distances *d, unsigned rmid)
{
    size_t lines = (size_t)d->sets * d->ways;
    uint64_t *made;

    pthread_mutex_lock(&d->lock);
    made = d->directories[rmid];
    if (!made && d->made < d->most && (made = malloc(lines * sizeof *made))) {
        memset(made, 0xff, lines * sizeof *made); /* NO_LINE */
        d->made++;
        __atomic_store_n(&d->directories[rmid], made, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&d->lock);
    return made;
}

/* Returns NULL if nothing is counted of this RMID. */
static uint64_t *directory_of(struct distances *d, unsigned rmid)
{
    uint64_t *directory;

    if (!d->directories || !d->ways)
        return NULL;
    directory = __atomic_load_n(&d->directories[rmid], __ATOMIC_ACQUIRE);
    if (directory || __atomic_load_n(&d->made, __ATOMIC_RELAXED) == d->most)
        return directory;
    return make_directory(d, rmid);
}

static void count(struct distances *d, unsigned rmid, unsigned distance, uint64_t weight)
{
    __atomic_fetch_add(&d->counts[(size_t)rmid * DISTANCES + distance], weight, __ATOMIC_RELAXED);
}

void distances_access(struct distances *d, unsigned rmid, uint32_t set, uint64_t number, uint64_t weight)
{
    uint64_t *directory = directory_of(d, rmid), *lines;
    unsigned distance = 0;

    if (!directory)
        return;
    lines = &directory[(size_t)set * d->ways];
    while (distance < d->ways && lines[distance] != number)
        distance++;
    /* What is pushed out at the end is not less than the ways away. */
    memmove(&lines[1], lines, (distance < d->ways ? distance : d->ways - 1) * sizeof *lines);
    lines[0] = number;
    count(d, rmid, distance < d->ways ? distance : BEYOND, weight);
}

void distances_found(struct distances *d, unsigned rmid, uint64_t weight)
{
    if (directory_of(d, rmid))
        count(d, rmid, 0, weight);
}

void distances_forget(struct distances *d, uint32_t set)
{
    for (unsigned i = 0; d->directories && i < d->rmids; i++)
        if (d->directories[i])
            memset(&d->directories[i][(size_t)set * d->ways], 0xff, d->ways * sizeof **d->directories);
}

uint64_t distances_of(const struct distances *d, unsigned rmid, unsigned distance)
{
    if (!d->counts || rmid >= d->rmids || distance >= DISTANCES)
        return 0;
    return __atomic_load_n(&d->counts[(size_t)rmid * DISTANCES + distance], __ATOMIC_RELAXED);
}
