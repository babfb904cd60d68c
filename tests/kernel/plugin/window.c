/* SPDX-License-Identifier: Apache-2.0 */
#include "window.h"

enum { WAYS = 32 };

bool window_ours(const struct options *o, uint32_t msr)
{
    return (msr >= WINDOW_COUNTS && msr < WINDOW_COUNTS + COUNTS * (uint32_t)o->rmids) ||
           (msr >= WINDOW_WAYS && msr < WINDOW_WAYS + WAYS * (uint32_t)o->rmids) ||
           (msr >= WINDOW_EVICTIONS && msr < WINDOW_EVICTIONS + (uint32_t)o->rmids * (uint32_t)o->rmids);
}

uint64_t window_read(struct hierarchy *h, unsigned domain, uint32_t msr)
{
    uint32_t offset;

    if (msr >= WINDOW_EVICTIONS) {
        offset = msr - WINDOW_EVICTIONS;
        return hierarchy_evicted(h, domain, offset / h->rmids, offset % h->rmids);
    }
    if (msr >= WINDOW_WAYS) {
        offset = msr - WINDOW_WAYS;
        return hierarchy_held_in_way(h, domain, offset / WAYS, offset % WAYS);
    }
    offset = msr - WINDOW_COUNTS;
    return window_count(h, domain, offset / COUNTS, offset % COUNTS);
}

uint64_t window_count(const struct hierarchy *h, unsigned domain, unsigned rmid, unsigned which)
{
    struct tally tally = hierarchy_tally(h, domain, rmid);
    struct share share = hierarchy_share(h, domain, rmid);

    switch (which) {
    case COUNT_INSTRUCTIONS:
        return tally.instructions;
    case COUNT_WRITEBACKS:
        return share.writebacks;
    case COUNT_OCCUPANCY:
        return share.lines * LINE;
    case COUNT_WAITED_NS:
        return tally.waited_ns;
    default:
        return which / 4 < KINDS && which % 4 < SERVERS ? tally.served[which / 4][which % 4] : 0;
    }
}
