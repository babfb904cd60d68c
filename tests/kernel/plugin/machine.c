/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <string.h>

static uint64_t ones(long bits)
{
    return (1ull << bits) - 1;
}

/*
 * After a reset every class may fill all ways (SDM 17.19.4.3) and no bandwidth is held back: 0 is no delay (SDM
 * 17.19.7), on AMD the bit over the bandwidth's bits is "unlimited" (APM 19, L3 External Bandwidth Enforcement). AMD's
 * two traffic counters then count all events and all but the remote ones (APM 19, Bandwidth Monitoring Event
 * Configuration).
 */
void machine_reset(struct machine *m, const struct options *o, unsigned ncpus, uint64_t now_ns)
{
    memset(m, 0, sizeof *m);
    m->options = *o;
    m->ncpus = ncpus;
    for (unsigned i = 0; i < ncpus; i++)
        m->cpus[i].domain = i / (ncpus / o->sockets);
    for (unsigned i = 0; i < MAX_CPUS; i++) {
        struct domain *d = &m->domains[i];

        for (unsigned k = 0; k < 2 * MAX_L3_CLOS; k++)
            d->l3_mask[k] = ones(o->l3ways);
        for (unsigned k = 0; k < 2 * MAX_L2_CLOS; k++)
            m->cpus[i].l2_mask[k] = ones(o->l2ways);
        for (unsigned k = 0; k < MAX_MBA_CLOS && o->amd; k++)
            d->mba[k] = d->smba[k] = 1ull << o->mbalen;
        d->event_cfg[0] = 0x7f;
        d->event_cfg[1] = 0x15;
        d->decayed_ns = now_ns;
    }
}

unsigned machine_domain_of(const struct machine *m, unsigned cpu)
{
    return m->cpus[cpu].domain;
}

static uint32_t sets(long size, long ways)
{
    long pages = size / LINE / ways / PAGE_LINES;

    return (pages ? pages : 1) * PAGE_LINES;
}

/* A CPU whose L3 can neither be allocated nor monitored is taken to have none: those of Goldmont. */
struct geometry machine_geometry(const struct options *o)
{
    bool l3 = o->l3 || o->cmt || o->mbmt || o->mbml;

    return (struct geometry){
        .l2_sets = sets(o->l2size, o->l2ways),
        .l2_ways = o->l2ways,
        .l3_sets = sets(o->l3size, o->l3ways),
        .l3_ways = l3 ? o->l3ways : 0,
        .sample = o->sample,
    };
}

/* CPUs read masks while others may write them. */
static uint64_t mask(const uint64_t *masks, uint64_t cfg, unsigned clos, bool code)
{
    return __atomic_load_n(&masks[cfg & 1 ? 2 * clos + code : clos], __ATOMIC_RELAXED);
}

uint64_t machine_l3_mask(const struct machine *m, unsigned cpu, bool code)
{
    const struct domain *d = &m->domains[machine_domain_of(m, cpu)];
    unsigned clos = machine_clos(&m->cpus[cpu]);

    if (!m->options.l3 || (long)clos >= m->options.l3clos)
        return ones(m->options.l3ways);
    return mask(d->l3_mask, d->l3_cfg, clos, code);
}

uint64_t machine_l2_mask(const struct machine *m, unsigned cpu, bool code)
{
    const struct cpu *c = &m->cpus[cpu];
    unsigned clos = machine_clos(c);

    if (!m->options.l2 || (long)clos >= m->options.l2clos)
        return ones(m->options.l2ways);
    return mask(c->l2_mask, c->l2_cfg, clos, code);
}

unsigned machine_rmid(const struct cpu *c)
{
    return c->pqr_assoc & (MAX_RMIDS - 1);
}

unsigned machine_clos(const struct cpu *c)
{
    return c->pqr_assoc >> 32;
}
