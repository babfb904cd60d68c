/* SPDX-License-Identifier: Apache-2.0 */
#include "stall.h"

#include "clock.h"

uint64_t debt_owe(struct debt *d, uint64_t ns)
{
    d->owed_ns += ns;
    return d->owed_ns >= (int64_t)STALL_GRAIN_NS ? d->owed_ns : 0;
}

void debt_slept(struct debt *d, uint64_t ns)
{
    d->owed_ns -= ns;
}

uint64_t pace_take(struct pace *p, uint64_t now, uint64_t bytes, uint64_t rate)
{
    uint64_t earliest = now > STALL_GRAIN_NS ? now - STALL_GRAIN_NS : 0;

    if (p->next_ns < earliest)
        p->next_ns = earliest;
    p->next_ns += bytes * SECOND_NS / rate;
    return p->next_ns > now + STALL_GRAIN_NS ? p->next_ns - now : 0;
}

uint64_t stall_limit(const struct machine *m, unsigned cpu)
{
    const struct options *o = &m->options;
    unsigned clos = machine_clos(&m->cpus[cpu]);
    uint64_t value;

    if (!o->mba || (long)clos >= o->mbaclos)
        return 0;
    value = __atomic_load_n(&m->domains[machine_domain_of(m, cpu)].mba[clos], __ATOMIC_RELAXED);
    if (o->amd) {
        if (value >> o->mbalen)
            return 0;
        /* The architecture does not say that a class with no bandwidth stands still, so one unit is the least. */
        return (value ? value : 1) * o->mba_unit;
    }
    if (!value)
        return 0;
    return (uint64_t)o->bandwidth / 100 * (value < 100 ? 100 - value : 1);
}

bool stall_is_spent(const struct machine *m, const struct hierarchy *h, unsigned cpu)
{
    unsigned domain = machine_domain_of(m, cpu), rmid = machine_rmid(&m->cpus[cpu]);
    uint64_t most = __atomic_load_n(&m->domains[domain].counters[rmid].most_cycles, __ATOMIC_RELAXED), cycles;
    struct tally tally;

    if (!most)
        return false;
    tally = hierarchy_tally(h, domain, rmid);
    cycles = tally.instructions;
    for (unsigned kind = 0; kind < KINDS; kind++)
        cycles += L3_CYCLES * tally.served[kind][FROM_L3] + MEMORY_CYCLES * tally.served[kind][FROM_MEMORY];
    return cycles >= most;
}
