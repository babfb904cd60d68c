/* SPDX-License-Identifier: Apache-2.0 */
/* The registers of RDT: which there are, what reading and writing them does. */
#ifndef RDT_MSR_H
#define RDT_MSR_H

#include <stdbool.h>
#include <stdint.h>

#include "machine.h"

/* SDM volume 4, table 2-2 (and 17.18, 17.19); AMD's are in APM 2, appendix A. */
enum {
    IA32_L3_QOS_CFG = 0xc81,
    IA32_L2_QOS_CFG = 0xc82,
    IA32_QM_EVTSEL = 0xc8d,
    IA32_QM_CTR = 0xc8e,
    IA32_PQR_ASSOC = 0xc8f,
    IA32_L3_QOS_MASK_0 = 0xc90,
    IA32_L2_QOS_MASK_0 = 0xd10,
    IA32_L2_QOS_EXT_BW_THRTL_0 = 0xd50,
};
#define AMD_MBA_BW_BASE 0xc0000200u
#define AMD_SMBA_BW_BASE 0xc0000280u
#define AMD_L3_QOS_ABMC_CFG 0xc00003fdu
#define AMD_L3_QOS_EXT_CFG 0xc00003ffu
#define AMD_QOS_EVT_CFG_0 0xc0000400u

/* Whether the plugin keeps this register, on a CPU with these features. */
bool msr_ours(const struct options *o, uint32_t msr);

/* RDMSR. Counters must be up to date (counters_charge, counters_settle, pmu_settle). */
uint64_t msr_read(const struct machine *m, unsigned cpu, uint32_t msr);

/* WRMSR. The CPU's work must have been charged, and the counters be up to date. */
void msr_write(struct machine *m, unsigned cpu, uint32_t msr, uint64_t value);

#endif
