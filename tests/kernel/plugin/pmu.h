/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The performance counters of a CPU: those of Intel's architectural performance monitoring, version 2 (SDM volume 3B,
 * "Performance Monitoring"), or the six that AMD's cores have (APM 2, 13.2.1 and CPUID.0x80000001:ECX bit 23).
 *
 * They count what Linux takes for perf's cycles, instructions, cache references and cache misses on these CPUs
 * (arch/x86/events/intel/core.c: intel_perfmon_event_map; amd/core.c: amd_zen2_perfmon_event_map). A counter of any other
 * event stays as it is. AMD's cache events are those of a core: accesses to its L2, and those that the L2 lacks.
 *
 *   cycles     one for each instruction; while the caches are modelled, also what a line from the L3 and from memory takes,
 *              and its time at the channel to memory, if there is one
 *   the others are counted; cache events only while the caches are modelled
 *
 * A counter that overflows goes on from 0: no interrupt comes, and no overflow is remembered. So counting is right, and
 * sampling finds nothing.
 *
 * Nothing here knows of QEMU.
 */
#ifndef RDT_PMU_H
#define RDT_PMU_H

#include <stdbool.h>
#include <stdint.h>

#include "hierarchy.h"
#include "options.h"

enum { INTEL_COUNTERS = 4, INTEL_FIXED = 3, AMD_COUNTERS = 6, COUNTER_BITS = 48 };

/* SDM volume 4, table 2-2; AMD's are in APM 2, appendix A: a selection and its counter in turns. */
enum {
    IA32_PMC0 = 0xc1,
    IA32_PERFEVTSEL0 = 0x186,
    IA32_FIXED_CTR0 = 0x309,
    IA32_PERF_CAPABILITIES = 0x345,
    IA32_FIXED_CTR_CTRL = 0x38d,
    IA32_PERF_GLOBAL_STATUS = 0x38e,
    IA32_PERF_GLOBAL_CTRL = 0x38f,
    IA32_PERF_GLOBAL_OVF_CTRL = 0x390,
    IA32_A_PMC0 = 0x4c1,
};
#define AMD_PERF_CTL0 0xc0010200u

/* What an instruction took in cycles in all, as tests/worth/cost.py weighs a server of 4 GHz. */
enum { L3_CYCLES = 80, MEMORY_CYCLES = 360 };

/* A CPU of QEMU is slow, and so is its channel. memory_ns= says what MEMORY_CYCLES take; without it, they take so long. */
enum { MEMORY_NS = 90 };

enum ring { KERNEL, USER, RINGS };

/* What a CPU did in a ring since boot. */
struct done {
    uint64_t instructions;
    uint64_t served[SERVERS]; /* accesses, by where they were served from */
    uint64_t channel_ns;      /* how long they took at the channel to memory (channel.h) */
};

struct pmu {
    uint64_t selected[AMD_COUNTERS], counted[AMD_COUNTERS];
    uint64_t fixed_ctrl, fixed[INTEL_FIXED];
    uint64_t global_ctrl;
    struct done last[RINGS]; /* what is in the counters */
};

/* Whether it is a register of the CPU's counters. */
bool pmu_ours(const struct options *o, uint32_t msr);

/* Count what a CPU did. Call it before any of the functions below. */
void pmu_settle(struct pmu *p, const struct options *o, const struct done now[RINGS]);

uint64_t pmu_read(const struct pmu *p, const struct options *o, uint32_t msr);
void pmu_write(struct pmu *p, const struct options *o, uint32_t msr, uint64_t value);

/* RDPMC. Returns whether there is a counter of this number; value is what it says. */
bool pmu_counter(const struct pmu *p, const struct options *o, uint32_t number, uint64_t *value);

#endif
