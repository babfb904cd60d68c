/* SPDX-License-Identifier: Apache-2.0 */
#include "pmu.h"

#include <stddef.h>

#define BIT(n) (1ull << (n))

enum event { NO_EVENT, CYCLES, INSTRUCTIONS, ACCESSES, L2_MISSES, L3_MISSES };

/* IA32_PERFEVTSELx and AMD's PERF_CTLx alike: event and unit mask, rings, enabled. */
enum { EVENT_AND_UNIT = 0xffff, SELECT_USER = 16, SELECT_KERNEL = 17, SELECT_ENABLE = 22 };

/* RDPMC: ECX bit 30 is for the fixed counters (SDM volume 2, RDPMC). */
#define FIXED_NUMBER BIT(30)
#define FULL_WIDTH BIT(13) /* IA32_PERF_CAPABILITIES: IA32_A_PMCx take all bits that a counter has */

static bool in(uint32_t msr, uint32_t first, uint32_t count)
{
    return msr >= first && msr - first < count;
}

static enum event intel_event(uint64_t selection)
{
    switch (selection & EVENT_AND_UNIT) {
    case 0x003c:
        return CYCLES;
    case 0x00c0:
        return INSTRUCTIONS;
    case 0x4f2e: /* requests to the last-level cache */
        return L2_MISSES;
    case 0x412e: /* those of them that it lacks */
        return L3_MISSES;
    default:
        return NO_EVENT;
    }
}

/* AMD's processor programming reference of family 19h: PMCx076, PMCx0C0, PMCx060, PMCx064 (code and data). */
static enum event amd_event(uint64_t selection)
{
    switch (selection & EVENT_AND_UNIT) {
    case 0x0076:
        return CYCLES;
    case 0x00c0:
        return INSTRUCTIONS;
    case 0xff60:
        return ACCESSES;
    case 0x0964:
        return L2_MISSES;
    default:
        return NO_EVENT;
    }
}

static uint64_t channel_cycles(const struct options *o, const struct done *d)
{
    return d->channel_ns * MEMORY_CYCLES / (o->memory_ns ? o->memory_ns : MEMORY_NS);
}

static uint64_t events(const struct options *o, enum event event, const struct done *d)
{
    switch (event) {
    case CYCLES:
        return d->instructions + L3_CYCLES * d->served[FROM_L3] + MEMORY_CYCLES * d->served[FROM_MEMORY] +
               channel_cycles(o, d);
    case INSTRUCTIONS:
        return d->instructions;
    case ACCESSES:
        return d->served[FROM_L2] + d->served[FROM_L3] + d->served[FROM_MEMORY];
    case L2_MISSES:
        return d->served[FROM_L3] + d->served[FROM_MEMORY];
    case L3_MISSES:
        return d->served[FROM_MEMORY];
    default:
        return 0;
    }
}

static bool selected_counts(const struct pmu *p, const struct options *o, unsigned i, enum ring ring)
{
    uint64_t needed = BIT(SELECT_ENABLE) | BIT(ring == USER ? SELECT_USER : SELECT_KERNEL);

    return (p->selected[i] & needed) == needed && (o->amd || p->global_ctrl & BIT(i));
}

/* IA32_FIXED_CTR_CTRL: four bits a counter, of which bit 0 is for the kernel's ring and bit 1 for the others. */
static bool fixed_counts(const struct pmu *p, unsigned i, enum ring ring)
{
    return p->fixed_ctrl & BIT(4 * i + (ring == USER)) && p->global_ctrl & BIT(32 + i);
}

void pmu_settle(struct pmu *p, const struct options *o, const struct done now[RINGS])
{
    /* Instructions, cycles, and cycles at a steady rate: all cycles are. */
    static const enum event fixed_events[INTEL_FIXED] = { INSTRUCTIONS, CYCLES, CYCLES };

    for (unsigned ring = 0; ring < RINGS; ring++) {
        for (unsigned i = 0; i < AMD_COUNTERS; i++) {
            enum event event = o->amd ? amd_event(p->selected[i]) : intel_event(p->selected[i]);

            if (selected_counts(p, o, i, ring))
                p->counted[i] += events(o, event, &now[ring]) - events(o, event, &p->last[ring]);
        }
        for (unsigned i = 0; i < INTEL_FIXED; i++)
            if (fixed_counts(p, i, ring))
                p->fixed[i] +=
                    events(o, fixed_events[i], &now[ring]) - events(o, fixed_events[i], &p->last[ring]);
        p->last[ring] = now[ring];
    }
}

/* Where a register's value is kept, NULL for those that keep none. */
static uint64_t *place(struct pmu *p, const struct options *o, uint32_t msr)
{
    uint32_t number = msr - AMD_PERF_CTL0;

    if (o->amd) {
        if (!in(msr, AMD_PERF_CTL0, 2 * AMD_COUNTERS))
            return NULL;
        return number % 2 ? &p->counted[number / 2] : &p->selected[number / 2];
    }
    if (in(msr, IA32_PMC0, INTEL_COUNTERS))
        return &p->counted[msr - IA32_PMC0];
    if (in(msr, IA32_A_PMC0, INTEL_COUNTERS))
        return &p->counted[msr - IA32_A_PMC0];
    if (in(msr, IA32_PERFEVTSEL0, INTEL_COUNTERS))
        return &p->selected[msr - IA32_PERFEVTSEL0];
    if (in(msr, IA32_FIXED_CTR0, INTEL_FIXED))
        return &p->fixed[msr - IA32_FIXED_CTR0];
    if (msr == IA32_FIXED_CTR_CTRL)
        return &p->fixed_ctrl;
    return msr == IA32_PERF_GLOBAL_CTRL ? &p->global_ctrl : NULL;
}

static bool is_counter(const struct pmu *p, const uint64_t *kept)
{
    return (kept >= p->counted && kept < p->counted + AMD_COUNTERS) || (kept >= p->fixed && kept < p->fixed + INTEL_FIXED);
}

static uint64_t counter(uint64_t value)
{
    return value & (BIT(COUNTER_BITS) - 1);
}

bool pmu_ours(const struct options *o, uint32_t msr)
{
    struct pmu none;

    if (!o->pmu)
        return false;
    return place(&none, o, msr) || (!o->amd && (msr == IA32_PERF_CAPABILITIES || msr == IA32_PERF_GLOBAL_STATUS ||
                                                msr == IA32_PERF_GLOBAL_OVF_CTRL));
}

uint64_t pmu_read(const struct pmu *p, const struct options *o, uint32_t msr)
{
    const uint64_t *kept = place((struct pmu *)p, o, msr);

    if (!kept)
        return msr == IA32_PERF_CAPABILITIES ? FULL_WIDTH : 0;
    return is_counter(p, kept) ? counter(*kept) : *kept;
}

/* What is written to IA32_PMCx is a signed number of 32 bits (SDM 3B, "Full-Width Writes to Performance Counters"). */
void pmu_write(struct pmu *p, const struct options *o, uint32_t msr, uint64_t value)
{
    uint64_t *kept = place(p, o, msr);

    if (kept)
        *kept = !o->amd && in(msr, IA32_PMC0, INTEL_COUNTERS) ? (uint64_t)(int32_t)value : value;
}

bool pmu_counter(const struct pmu *p, const struct options *o, uint32_t number, uint64_t *value)
{
    uint32_t fixed = number ^ FIXED_NUMBER;

    if (!o->amd && fixed < INTEL_FIXED)
        *value = counter(p->fixed[fixed]);
    else if (number < (o->amd ? AMD_COUNTERS : INTEL_COUNTERS))
        *value = counter(p->counted[number]);
    else
        return false;
    return true;
}
