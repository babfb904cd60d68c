/* SPDX-License-Identifier: Apache-2.0 */
#include "counters.h"

#include <math.h>
#include <stdbool.h>

double counters_share(const struct machine *m, unsigned domain, unsigned clos)
{
    const struct options *o = &m->options;
    const struct domain *d = &m->domains[domain];
    uint64_t mask;

    if (!o->l3 || (long)clos >= o->l3clos)
        return o->l3size;
    /* With CDP a class has a mask for data and one for code: SDM 17.19.3. */
    mask = d->l3_cfg & 1 ? d->l3_mask[2 * clos] | d->l3_mask[2 * clos + 1] : d->l3_mask[clos];
    return (double)o->l3size * __builtin_popcountll(mask) / o->l3ways;
}

/* Intel's throttling value is the share of bandwidth held back, per cent (SDM 17.19.7.2, linear mode). */
static uint64_t throttled(const struct machine *m, unsigned domain, unsigned clos, uint64_t bytes)
{
    const struct options *o = &m->options;
    uint64_t delay;

    if (!o->mba || o->amd || (long)clos >= o->mbaclos)
        return bytes;
    delay = m->domains[domain].mba[clos];
    return delay >= 100 ? 0 : bytes / 100 * (100 - delay) + bytes % 100 * (100 - delay) / 100;
}

void counters_charge(struct machine *m, unsigned cpu, uint64_t work)
{
    const struct options *o = &m->options;
    struct cpu *c = &m->cpus[cpu];
    unsigned domain = machine_domain_of(m, cpu), rmid = machine_rmid(c), clos = machine_clos(c);
    uint64_t bytes = throttled(m, domain, clos, (work - c->charged) * o->bytes);
    double share = counters_share(m, domain, clos);
    struct counter *k;

    c->charged = work;
    if ((long)rmid >= o->rmids || m->modelled)
        return;
    k = &m->domains[domain].counters[rmid];
    k->total += bytes;
    k->local += bytes / 100 * o->localpct + bytes % 100 * o->localpct / 100;
    k->occupancy = k->occupancy > share ? fmax(k->occupancy - bytes, share) : fmin(k->occupancy + bytes, share);
}

static bool in_use(const struct machine *m, unsigned domain, unsigned rmid)
{
    for (unsigned i = 0; i < m->ncpus; i++)
        if (machine_domain_of(m, i) == domain && machine_rmid(&m->cpus[i]) == rmid)
            return true;
    return false;
}

void counters_settle(struct machine *m, unsigned domain, uint64_t now_ns)
{
    struct domain *d = &m->domains[domain];
    double kept = exp2(-((double)(now_ns - d->decayed_ns) / 1e6 / m->options.halflife)), sum = 0;

    d->decayed_ns = now_ns;
    if (m->modelled)
        return;
    for (long r = 0; r < m->options.rmids; r++) {
        if (!in_use(m, domain, r))
            d->counters[r].occupancy *= kept;
        sum += d->counters[r].occupancy;
    }
    for (long r = 0; r < m->options.rmids && sum > m->options.l3size; r++)
        d->counters[r].occupancy *= m->options.l3size / sum;
}

void counters_take(struct machine *m, unsigned domain, unsigned rmid, uint64_t traffic, uint64_t occupancy)
{
    struct counter *k = &m->domains[domain].counters[rmid];

    k->total += traffic - k->taken;
    k->local += traffic - k->taken;
    k->taken = traffic;
    k->occupancy = occupancy;
}

enum { REMOTE_READS = 1 << 1 }; /* of L3_QOS_EVT_CFG: what the event of total traffic has, and that of local has not */

/* The bytes so far of the event that a counter is assigned to. */
static uint64_t so_far(const struct domain *d, uint64_t cfg)
{
    const struct counter *k = &d->counters[(cfg >> 32) & (MAX_RMIDS - 1)];

    return cfg & REMOTE_READS ? k->total : k->local;
}

void counters_assign(struct machine *m, unsigned domain, uint64_t cfg)
{
    struct domain *d = &m->domains[domain];

    if (cfg & ABMC_APPLY)
        d->assigned[(cfg >> 48) & (MAX_ASSIGNED - 1)] = (struct assigned){ cfg, so_far(d, cfg) };
}

static uint64_t assigned_read(const struct machine *m, unsigned domain, unsigned number)
{
    const struct options *o = &m->options;
    const struct domain *d = &m->domains[domain];
    const struct assigned *a = &d->assigned[number];

    if ((long)number >= o->abmc)
        return QM_CTR_ERROR;
    if (!(a->cfg & ABMC_COUNTS))
        return 0;
    return (so_far(d, a->cfg) - a->began) / o->upscale & ((1ull << (24 + o->mbmoff)) - 1);
}

/*
 * The traffic counters wrap at 24 bits and what CPUID adds (SDM 17.18.5.2); a bad RMID or event is an error, and data
 * that is not there is unavailable (SDM 17.18.7).
 */
uint64_t counters_read(const struct machine *m, unsigned domain, uint64_t evtsel)
{
    const struct options *o = &m->options;
    unsigned event = evtsel & 0xff, rmid = (evtsel >> 32) & (MAX_RMIDS - 1);
    uint64_t wrap = (1ull << (24 + o->mbmoff)) - 1;
    const struct counter *k = &m->domains[domain].counters[rmid];

    if (o->abmc && evtsel & EVTSEL_EXTENDED && event == EVENT_ASSIGNED)
        return assigned_read(m, domain, (evtsel >> 32) & (MAX_ASSIGNED - 1));
    if ((long)rmid >= o->rmids || k->fault == FAULT_ERROR)
        return QM_CTR_ERROR;
    if (k->fault == FAULT_UNAVAILABLE)
        return QM_CTR_UNAVAILABLE;
    if (event == EVENT_OCCUPANCY && o->cmt)
        return (uint64_t)k->occupancy / o->upscale;
    if (event == EVENT_TOTAL && o->mbmt)
        return k->total / o->upscale & wrap;
    if (event == EVENT_LOCAL && o->mbml)
        return k->local / o->upscale & wrap;
    return QM_CTR_ERROR;
}
