/* SPDX-License-Identifier: Apache-2.0 */
#include "control.h"

#include <stddef.h>

bool control_ours(uint32_t msr)
{
    return (msr >= CONTROL_UNAVAILABLE && msr <= CONTROL_OCCUPANCY) || msr == CONTROL_MARK ||
           (msr >= CONTROL_CACHE && msr <= CONTROL_LAST);
}

bool control_of_cycles(const struct options *o, uint32_t msr)
{
    return msr >= CONTROL_CYCLES && msr < CONTROL_CYCLES + (uint32_t)o->rmids;
}

const char *control_option(uint32_t msr)
{
    static const char *const names[] = { "sample",    "l2size",   "l3_ns",    "memory_ns",
                                         "bandwidth", "mba_unit", "evictions", "curves",
                                         "channel" };

    return msr >= CONTROL_SAMPLE && msr <= CONTROL_LAST ? names[msr - CONTROL_SAMPLE] : NULL;
}

void control_write(struct domain *d, uint32_t msr, uint64_t value)
{
    uint64_t bytes = value & ((1ull << 48) - 1);
    struct counter *of_low = &d->counters[value & (MAX_RMIDS - 1)];
    struct counter *of_high = &d->counters[(value >> 48) & (MAX_RMIDS - 1)];

    switch (msr) {
    case CONTROL_UNAVAILABLE:
        of_low->fault = FAULT_UNAVAILABLE;
        break;
    case CONTROL_ERROR:
        of_low->fault = FAULT_ERROR;
        break;
    case CONTROL_NORMAL:
        /*
         * Hardware that had lost track of an RMID begins anew, and Linux counts on that: after "Unavailable" it takes
         * the next reading as it is for what was added (arch/x86/kernel/cpu/resctrl/monitor.c, resctrl_arch_rmid_read).
         */
        if (of_low->fault == FAULT_UNAVAILABLE)
            of_low->total = of_low->local = 0;
        of_low->fault = FAULT_NONE;
        break;
    case CONTROL_TRAFFIC:
        of_high->total += bytes;
        of_high->local += bytes;
        break;
    case CONTROL_OCCUPANCY:
        of_high->occupancy = bytes;
        break;
    }
}
