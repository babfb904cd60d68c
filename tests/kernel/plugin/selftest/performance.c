/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the performance counters. */
#include "../control.h"
#include "../cpuid.h"
#include "../decode.h"
#include "../msr.h"
#include "../pmu.h"
#include "booted.h"
#include "check.h"

#define ENABLED (1ull << 22)
#define OF_USER (1ull << 16)
#define OF_KERNEL (1ull << 17)
#define EVERYWHERE (ENABLED | OF_USER | OF_KERNEL)

enum { INTEL_CYCLES = 0x3c, AMD_CYCLES = 0x76, RETIRED = 0xc0, INTEL_REFERENCES = 0x4f2e, INTEL_MISSES = 0x412e };
enum { AMD_REFERENCES = 0xff60, AMD_MISSES = 0x0964 };

/* What the first CPU has done: 1000 instructions in the kernel and 200 elsewhere; lines from the L2, L3, memory. */
static const struct done nothing[RINGS];
static const struct done work[RINGS] = {
    [KERNEL] = { .instructions = 1000, .served = { 50, 7, 3 } },
    [USER] = { .instructions = 200, .served = { 20, 5, 1 } },
};

static void settle(const struct done now[RINGS])
{
    pmu_settle(&m.cpus[0].pmu, &m.options, now);
}

static uint64_t rdpmc(uint32_t number)
{
    uint64_t value = 0;

    CHECK(pmu_counter(&m.cpus[0].pmu, &m.options, number, &value));
    return value;
}

/* What Intel's first counter counts of the work when it is told to count this. */
static uint64_t intel_counts(uint64_t selection)
{
    boot("pmu=1");
    msr_write(&m, 0, IA32_PERF_GLOBAL_CTRL, 1);
    msr_write(&m, 0, IA32_PERFEVTSEL0, selection);
    settle(work);
    return rdpmc(0);
}

static uint64_t amd_counts(uint64_t selection)
{
    boot("pmu=1,amd=1");
    msr_write(&m, 0, AMD_PERF_CTL0, selection);
    settle(work);
    return rdpmc(0);
}

TEST(each_event_is_counted_by_its_vendors_code)
{
    CHECK(intel_counts(EVERYWHERE | RETIRED) == 1200);
    CHECK(intel_counts(EVERYWHERE | INTEL_CYCLES) == 1200 + 12 * L3_CYCLES + 4 * MEMORY_CYCLES);
    CHECK(intel_counts(EVERYWHERE | INTEL_REFERENCES) == 16);
    CHECK(intel_counts(EVERYWHERE | INTEL_MISSES) == 4);
    CHECK(intel_counts(EVERYWHERE | AMD_MISSES) == 0);
    CHECK(amd_counts(EVERYWHERE | RETIRED) == 1200);
    CHECK(amd_counts(EVERYWHERE | AMD_CYCLES) == 1200 + 12 * L3_CYCLES + 4 * MEMORY_CYCLES);
    CHECK(amd_counts(EVERYWHERE | AMD_REFERENCES) == 86);
    CHECK(amd_counts(EVERYWHERE | AMD_MISSES) == 16);
    CHECK(amd_counts(EVERYWHERE | INTEL_MISSES) == 0);
}

TEST(time_at_the_channel_is_cycles_as_a_line_from_memory_is)
{
    struct done now[RINGS] = { [USER] = { .instructions = 200, .channel_ns = 1000 } };

    boot("pmu=1");
    msr_write(&m, 0, IA32_PERF_GLOBAL_CTRL, 1);
    msr_write(&m, 0, IA32_PERFEVTSEL0, EVERYWHERE | INTEL_CYCLES);
    settle(now);
    CHECK(rdpmc(0) == 200 + 4000);
    msr_write(&m, 0, CONTROL_MEMORY_NS, 3600);
    now[USER].channel_ns = 3000;
    settle(now);
    CHECK(rdpmc(0) == 200 + 4000 + 200);
}

TEST(a_ring_is_counted_if_it_is_selected)
{
    CHECK(intel_counts(ENABLED | OF_USER | RETIRED) == 200);
    CHECK(intel_counts(ENABLED | OF_KERNEL | INTEL_MISSES) == 3);
    CHECK(amd_counts(ENABLED | OF_USER | AMD_MISSES) == 6);
    CHECK(amd_counts(ENABLED | RETIRED) == 0);
    CHECK(amd_counts(OF_USER | OF_KERNEL | RETIRED) == 0);
}

TEST(intels_counters_count_if_both_registers_say_so)
{
    boot("pmu=1");
    for (unsigned i = 0; i < 4; i++)
        msr_write(&m, 0, IA32_PERFEVTSEL0 + i, EVERYWHERE | RETIRED);
    msr_write(&m, 0, IA32_FIXED_CTR_CTRL, 0x233);
    msr_write(&m, 0, IA32_PERF_GLOBAL_CTRL, 1ull << 32 | 1ull << 34 | 0x4);
    settle(work);
    CHECK(rdpmc(0) == 0 && rdpmc(1) == 0 && rdpmc(2) == 1200 && rdpmc(3) == 0);
    CHECK(rdpmc(1u << 30) == 1200);
    CHECK(rdpmc(1u << 30 | 1) == 0);
    CHECK(rdpmc(1u << 30 | 2) == 200 + 5 * L3_CYCLES + 1 * MEMORY_CYCLES);
}

TEST(only_what_is_done_while_a_counter_is_on_is_in_it)
{
    boot("pmu=1,amd=1");
    settle(work);
    msr_write(&m, 0, AMD_PERF_CTL0 + 6, EVERYWHERE | RETIRED);
    settle(work);
    CHECK(rdpmc(3) == 0);
    settle((const struct done[RINGS]){ { .instructions = 1010 }, { .instructions = 203 } });
    CHECK(rdpmc(3) == 13);
    msr_write(&m, 0, AMD_PERF_CTL0 + 6, RETIRED);
    settle((const struct done[RINGS]){ { .instructions = 2000 }, { .instructions = 2000 } });
    CHECK(rdpmc(3) == 13);
    CHECK(msr_read(&m, 0, AMD_PERF_CTL0 + 6) == RETIRED);
    CHECK(msr_read(&m, 0, AMD_PERF_CTL0 + 7) == 13);
    CHECK(msr_read(&m, 1, AMD_PERF_CTL0 + 7) == 0);
}

TEST(a_performance_counter_has_48_bits_and_begins_anew_behind_them)
{
    boot("pmu=1");
    msr_write(&m, 0, IA32_PERF_GLOBAL_CTRL, 1);
    msr_write(&m, 0, IA32_PERFEVTSEL0, EVERYWHERE | RETIRED);
    msr_write(&m, 0, IA32_A_PMC0, 0xffffffffff00);
    CHECK(msr_read(&m, 0, IA32_PMC0) == 0xffffffffff00);
    settle(work);
    CHECK(rdpmc(0) == 1200 - 0x100);
    CHECK(msr_read(&m, 0, IA32_A_PMC0) == 1200 - 0x100);
    msr_write(&m, 0, IA32_PMC0, 0xabc80000000);
    CHECK(rdpmc(0) == 0xffff80000000);
    CHECK(msr_read(&m, 0, IA32_PERF_GLOBAL_STATUS) == 0);
}

TEST(there_are_no_other_counters)
{
    uint64_t value;

    boot("pmu=1");
    settle(nothing);
    CHECK(!pmu_counter(&m.cpus[0].pmu, &m.options, 4, &value));
    CHECK(!pmu_counter(&m.cpus[0].pmu, &m.options, 1u << 30 | 3, &value));
    CHECK(msr_ours(&m.options, IA32_PERFEVTSEL0 + 3) && !msr_ours(&m.options, IA32_PERFEVTSEL0 + 4));
    CHECK(!msr_ours(&m.options, AMD_PERF_CTL0));
    boot("pmu=1,amd=1");
    CHECK(!pmu_counter(&m.cpus[0].pmu, &m.options, 6, &value));
    CHECK(!pmu_counter(&m.cpus[0].pmu, &m.options, 1u << 30, &value));
    CHECK(msr_ours(&m.options, AMD_PERF_CTL0 + 11) && !msr_ours(&m.options, AMD_PERF_CTL0 + 12));
    CHECK(!msr_ours(&m.options, IA32_PERF_GLOBAL_CTRL));
    boot("");
    CHECK(!msr_ours(&m.options, IA32_PERFEVTSEL0) && !msr_ours(&m.options, IA32_PERF_GLOBAL_CTRL));
    boot("amd=1");
    CHECK(!msr_ours(&m.options, AMD_PERF_CTL0));
}

TEST(cpuid_says_that_there_are_performance_counters)
{
    const struct cpuid without = { 1, 2, 3, 4 };
    struct cpuid r;

    boot("pmu=1");
    CHECK(cpuid_answer(&m.options, 1, 0, without).ecx == (3 | 1 << 15));
    r = cpuid_answer(&m.options, 0xa, 0, without);
    CHECK(r.eax == 0x07300402 && r.ebx == 0x64 && r.ecx == 0 && r.edx == 0x603);
    CHECK(msr_read(&m, 0, IA32_PERF_CAPABILITIES) == 1 << 13);
    CHECK(!cpuid_ours(&m.options, 0x80000001, 0));
    boot("pmu=1,amd=1");
    CHECK(cpuid_answer(&m.options, 0x80000001, 0, without).ecx == (3 | 1 << 23));
    CHECK(!cpuid_ours(&m.options, 0xa, 0) && !cpuid_ours(&m.options, 1, 0));
    boot("");
    CHECK(!cpuid_ours(&m.options, 0xa, 0) && !cpuid_ours(&m.options, 1, 0));
}

TEST(instructions_that_counting_needs_are_recognised)
{
    CHECK(decode((const uint8_t[]){ 0x0f, 0x33 }, 2) == RDPMC);
    CHECK(decode((const uint8_t[]){ 0x0f, 0x01, 0xd8 }, 3) == VMRUN);
    CHECK(decode((const uint8_t[]){ 0x0f, 0x01, 0xd9 }, 3) == OTHER);
    CHECK(decode((const uint8_t[]){ 0x0f, 0x01, 0xd8, 0x00 }, 4) == OTHER);
}
