/* SPDX-License-Identifier: Apache-2.0 */
#include "evictions.h"

#include <stdlib.h>

bool evictions_make(struct evictions *e, unsigned rmids)
{
    *e = (struct evictions){ .rmids = rmids, .lines = calloc((size_t)rmids * rmids, sizeof *e->lines) };
    return e->lines;
}

void evictions_free(struct evictions *e)
{
    free(e->lines);
    *e = (struct evictions){ 0 };
}

void evictions_count(struct evictions *e, unsigned by, unsigned of, uint64_t lines)
{
    if (e->lines)
        __atomic_fetch_add(&e->lines[(size_t)by * e->rmids + of], lines, __ATOMIC_RELAXED);
}

uint64_t evictions_of(const struct evictions *e, unsigned by, unsigned of)
{
    if (by >= e->rmids || of >= e->rmids)
        return 0;
    return __atomic_load_n(&e->lines[(size_t)by * e->rmids + of], __ATOMIC_RELAXED);
}
