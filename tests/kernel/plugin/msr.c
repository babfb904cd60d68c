/* SPDX-License-Identifier: Apache-2.0 */
#include "msr.h"

#include <stddef.h>

#include "control.h"
#include "counters.h"
#include "window.h"

static bool in(uint32_t msr, uint32_t first, uint32_t count)
{
    return msr >= first && msr - first < count;
}

bool msr_ours(const struct options *o, uint32_t msr)
{
    if (in(msr, IA32_L3_QOS_MASK_0, 2 * MAX_L3_CLOS) || msr == IA32_L3_QOS_CFG)
        return o->l3;
    if (in(msr, IA32_L2_QOS_MASK_0, 2 * MAX_L2_CLOS) || msr == IA32_L2_QOS_CFG)
        return o->l2;
    if (in(msr, IA32_L2_QOS_EXT_BW_THRTL_0, MAX_MBA_CLOS))
        return o->mba && !o->amd;
    if (in(msr, AMD_MBA_BW_BASE, MAX_MBA_CLOS))
        return o->mba && o->amd;
    if (in(msr, AMD_SMBA_BW_BASE, MAX_MBA_CLOS))
        return o->smba;
    if (msr == AMD_L3_QOS_EXT_CFG)
        return o->sdciae || o->abmc;
    if (msr == AMD_L3_QOS_ABMC_CFG)
        return o->abmc;
    if (in(msr, AMD_QOS_EVT_CFG_0, 2))
        return o->bmec;
    return in(msr, IA32_QM_EVTSEL, 3) || pmu_ours(o, msr) || control_ours(msr) || control_of_cycles(o, msr) ||
           window_ours(o, msr);
}

/*
 * Where a register's value is kept, NULL for those that keep none. Selection and association are of a logical processor
 * (SDM 17.18.6, 17.18.7), L2 masks of an L2, all else of an L3 (SDM 17.19.4.3: "scope").
 */
static uint64_t *place(struct machine *m, unsigned cpu, uint32_t msr)
{
    struct cpu *c = &m->cpus[cpu];
    struct domain *d = &m->domains[machine_domain_of(m, cpu)];

    switch (msr) {
    case IA32_PQR_ASSOC:
        return &c->pqr_assoc;
    case IA32_QM_EVTSEL:
        return &c->qm_evtsel;
    case IA32_L3_QOS_CFG:
        return &d->l3_cfg;
    case IA32_L2_QOS_CFG:
        return &c->l2_cfg;
    case AMD_L3_QOS_EXT_CFG:
        return &d->ext_cfg;
    }
    if (in(msr, IA32_L3_QOS_MASK_0, 2 * MAX_L3_CLOS))
        return &d->l3_mask[msr - IA32_L3_QOS_MASK_0];
    if (in(msr, IA32_L2_QOS_MASK_0, 2 * MAX_L2_CLOS))
        return &c->l2_mask[msr - IA32_L2_QOS_MASK_0];
    if (in(msr, IA32_L2_QOS_EXT_BW_THRTL_0, MAX_MBA_CLOS))
        return &d->mba[msr - IA32_L2_QOS_EXT_BW_THRTL_0];
    if (in(msr, AMD_MBA_BW_BASE, MAX_MBA_CLOS))
        return &d->mba[msr - AMD_MBA_BW_BASE];
    if (in(msr, AMD_SMBA_BW_BASE, MAX_MBA_CLOS))
        return &d->smba[msr - AMD_SMBA_BW_BASE];
    if (in(msr, AMD_QOS_EVT_CFG_0, 2))
        return &d->event_cfg[msr - AMD_QOS_EVT_CFG_0];
    if (control_of_cycles(&m->options, msr))
        return &d->counters[msr - CONTROL_CYCLES].most_cycles;
    return NULL;
}

uint64_t msr_read(const struct machine *m, unsigned cpu, uint32_t msr)
{
    const uint64_t *value;

    if (msr == IA32_QM_CTR)
        return counters_read(m, machine_domain_of(m, cpu), m->cpus[cpu].qm_evtsel);
    if (pmu_ours(&m->options, msr))
        return pmu_read(&m->cpus[cpu].pmu, &m->options, msr);
    if (control_option(msr))
        return options_get(&m->options, control_option(msr));
    if (msr == CONTROL_MARK)
        return m->cpus[cpu].marked;
    if (msr == CONTROL_CACHE)
        return (uint64_t)m->turns << 8 | m->modelled;
    value = place((struct machine *)m, cpu, msr);
    return value ? *value : 0;
}

void msr_write(struct machine *m, unsigned cpu, uint32_t msr, uint64_t value)
{
    uint64_t *kept = place(m, cpu, msr);

    if (pmu_ours(&m->options, msr))
        pmu_write(&m->cpus[cpu].pmu, &m->options, msr, value);
    else if (kept)
        *kept = value;
    else if (msr == AMD_L3_QOS_ABMC_CFG)
        counters_assign(m, machine_domain_of(m, cpu), value);
    else if (msr == CONTROL_MARK)
        m->cpus[cpu].marked = value ? m->cpus[cpu].pqr_assoc | MARKED : 0;
    else if (control_option(msr))
        options_set(&m->options, control_option(msr), value);
    else if (control_ours(msr))
        control_write(&m->domains[machine_domain_of(m, cpu)], msr, value);
}
