/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the parts of the plugin that know nothing of QEMU; tests/kernel/test_plugin.py builds and runs them. */
#include <math.h>

#include "../control.h"
#include "../counters.h"
#include "../cpuid.h"
#include "../decode.h"
#include "../machine.h"
#include "../msr.h"
#include "../options.h"
#include "booted.h"
#include "check.h"

struct test *all_tests;
bool check_failed;

#define SECOND 1000000000ull
#define REGISTERS(...) ((struct cpuid){ __VA_ARGS__ })
#define NOTHING REGISTERS(0)
#define UNCHANGED REGISTERS(1, 2, 3, 4)

struct machine m;
static char error[256];

/* Take comma-separated arguments over the defaults. */
static bool parse(const char *arguments, struct options *o)
{
    char text[256], *words[32], *rest = text;
    int count = 0;

    snprintf(text, sizeof text, "%s", arguments);
    for (char *word; (word = strsep(&rest, ","));)
        if (*word)
            words[count++] = word;
    options_default(o);
    error[0] = 0;
    return options_parse(o, count, words, error, sizeof error);
}

void boot(const char *arguments)
{
    struct options o;

    CHECK(parse(arguments, &o));
    CHECK(options_check(&o, 4, error, sizeof error));
    machine_reset(&m, &o, 4, 0);
}

static bool refused(const char *argument, const char *why)
{
    struct options o;

    return !parse(argument, &o) && strstr(error, why);
}

static bool does_not_fit(const char *arguments, int vcpus, const char *why)
{
    struct options o;

    return parse(arguments, &o) && !options_check(&o, vcpus, error, sizeof error) && strstr(error, why);
}

/* Whether CPUID returns this; the CPU without RDT returns 1, 2, 3, 4. */
static bool answers(uint32_t leaf, uint32_t subleaf, struct cpuid expected)
{
    struct cpuid r = cpuid_answer(&m.options, leaf, subleaf, (struct cpuid){ 1, 2, 3, 4 });

    if (!memcmp(&r, &expected, sizeof r))
        return true;
    printf("leaf %#x, %u: eax %#x ebx %#x ecx %#x edx %#x\n", leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
    return false;
}

static uint64_t select_event(unsigned event, unsigned rmid)
{
    return (uint64_t)rmid << 32 | event;
}

void associate(unsigned cpu, unsigned rmid, unsigned clos)
{
    msr_write(&m, cpu, IA32_PQR_ASSOC, (uint64_t)clos << 32 | rmid);
}

static struct counter *counter(unsigned domain, unsigned rmid)
{
    return &m.domains[domain].counters[rmid];
}

/* ---- arguments ---- */

TEST(an_argument_that_does_not_exist_is_named)
{
    CHECK(refused("l3way=3", "l3way=3"));
    CHECK(refused("l3ways", "l3ways"));
    CHECK(refused("=3", "=3"));
}

TEST(a_value_out_of_range_is_refused_with_the_range)
{
    CHECK(refused("l3ways=0", "must be 1 to 32"));
    CHECK(refused("l3ways=33", "must be 1 to 32"));
    CHECK(refused("rmids=1025", "must be 1 to 1024"));
    CHECK(refused("l3ways=eleven", "not a number"));
    CHECK(refused("l3ways=", "not a number"));
    CHECK(refused("l3ways=99999999999999999999", "not a number"));
}

TEST(numbers_may_be_hexadecimal_and_switches_words)
{
    boot("l3shared=0x3,l2=on,l3cdp=off");
    CHECK(m.options.l3shared == 3);
    CHECK(m.options.l2 == 1);
    CHECK(m.options.l3cdp == 0);
}

TEST(arguments_must_fit_each_other)
{
    CHECK(does_not_fit("sockets=3", 4, "sockets="));
    CHECK(does_not_fit("l3ways=8,l3shared=0x100", 4, "l3shared="));
    CHECK(does_not_fit("bmec=1", 4, "amd=1"));
    CHECK(does_not_fit("smba=1", 4, "amd=1"));
    CHECK(does_not_fit("sdciae=1", 4, "amd=1"));
    CHECK(does_not_fit("abmc=4", 4, "amd=1"));
    CHECK(does_not_fit("amd=1,l2=1", 4, "l2="));
    CHECK(does_not_fit("topoext=1", 4, "amd=1"));
    CHECK(does_not_fit("amd=1,topoext=1,l3ways=16,l3shared=0,l3size=1000000", 4, "l3size="));
    CHECK(does_not_fit("sockets=1", 65, "too many"));
}

/* ---- CPUID ---- */

TEST(cpuid_says_what_a_cascade_lake_has)
{
    boot("");
    CHECK(answers(7, 0, REGISTERS(1, 2 | 1 << 12 | 1 << 15, 3, 4)));
    CHECK(answers(0xf, 0, REGISTERS(.ebx = 31, .edx = 1 << 1)));
    CHECK(answers(0xf, 1, REGISTERS(.ebx = 65536, .ecx = 31, .edx = 7)));
    CHECK(answers(0x10, 0, REGISTERS(.ebx = 1 << 1 | 1 << 3)));
    CHECK(answers(0x10, 1, REGISTERS(10, 0x600, 1 << 2, 15)));
    CHECK(answers(0x10, 2, NOTHING));
    CHECK(answers(0x10, 3, REGISTERS(89, 0, 1 << 2, 7)));
    CHECK(answers(0x10, 4, NOTHING));
}

TEST(cpuid_says_that_masks_may_have_gaps)
{
    boot("l3ways=15,l3shared=0x6000,l3clos=15,l3noncont=1,l2=1,l2cdp=1,l2noncont=1");
    CHECK(answers(0x10, 0, REGISTERS(.ebx = 1 << 1 | 1 << 2 | 1 << 3)));
    CHECK(answers(0x10, 1, REGISTERS(14, 0x6000, 1 << 2 | 1 << 3, 14)));
    CHECK(answers(0x10, 2, REGISTERS(15, 0, 1 << 2 | 1 << 3, 7)));
}

TEST(cpuid_says_what_a_milan_has)
{
    boot("amd=1,l3ways=16,l3shared=0,mbaclos=16,bmec=1,mbmoff=20,rmids=64");
    CHECK(answers(0x80000008, 0, REGISTERS(1, 2 | 1 << 6, 3, 4)));
    CHECK(answers(0x80000020, 0, REGISTERS(.ebx = 1 << 1 | 1 << 3)));
    CHECK(answers(0x80000020, 1, REGISTERS(.eax = 11, .edx = 15)));
    CHECK(answers(0x80000020, 3, REGISTERS(.ebx = 2, .ecx = 0x7f)));
    CHECK(answers(0x10, 0, REGISTERS(.ebx = 1 << 1)));
    CHECK(answers(0x10, 3, NOTHING));
    CHECK(answers(0xf, 1, REGISTERS(20, 65536, 63, 7)));
}

TEST(cpuid_says_what_a_genoa_has)
{
    boot("amd=1,mbaclos=16,bmec=1,smba=1,sdciae=1");
    CHECK(answers(0x80000020, 0, REGISTERS(.ebx = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 6)));
    CHECK(answers(0x80000020, 1, REGISTERS(.eax = 11, .edx = 15)));
    CHECK(answers(0x80000020, 2, REGISTERS(.eax = 11, .edx = 15)));
    boot("amd=1");
    CHECK(answers(0x80000020, 2, NOTHING));
}

TEST(cpuid_says_how_many_counters_can_be_assigned)
{
    boot("amd=1,abmc=6,mba=0");
    CHECK(answers(0x80000020, 0, REGISTERS(.ebx = 1 << 5)));
    CHECK(answers(0x80000020, 3, REGISTERS(.ecx = 0x7f)));
    CHECK(answers(0x80000020, 5, REGISTERS(.ebx = 5)));
    boot("amd=1");
    CHECK(answers(0x80000020, 5, NOTHING));
}

TEST(cpuid_says_that_cpus_of_amd_share_an_l3_of_that_size)
{
    boot("amd=1,topoext=1,l3ways=16,l3shared=0,l3size=0x400000");
    CHECK(answers(0x80000001, 0, REGISTERS(1, 2, 3 | 1 << 22, 4)));
    CHECK(answers(0x8000001d, 3, REGISTERS(1, 2 | 15 << 22, 4095, 4)));
    CHECK(!cpuid_ours(&m.options, 0x8000001d, 2));
    boot("amd=1");
    CHECK(!cpuid_ours(&m.options, 0x80000001, 0));
    CHECK(!cpuid_ours(&m.options, 0x8000001d, 3));
}

TEST(cpuid_without_a_feature_says_nothing_of_it)
{
    boot("cmt=0,mbmt=0,mbml=0,l3=0,mba=0");
    CHECK(answers(7, 0, UNCHANGED));
    CHECK(answers(0xf, 0, NOTHING));
    CHECK(answers(0xf, 1, NOTHING));
    CHECK(answers(0x10, 0, NOTHING));
    CHECK(answers(0x10, 1, NOTHING));
    boot("amd=1,mba=0");
    CHECK(answers(0x80000008, 0, UNCHANGED));
    CHECK(answers(0x80000020, 0, NOTHING));
}

TEST(other_leaves_are_left_alone)
{
    boot("");
    CHECK(!cpuid_ours(&m.options, 7, 1));
    CHECK(!cpuid_ours(&m.options, 4, 0));
    CHECK(!cpuid_ours(&m.options, 0x80000008, 0));
    CHECK(!cpuid_ours(&m.options, 0x80000020, 0));
    CHECK(answers(4, 0, UNCHANGED));
    CHECK(cpuid_ours(&m.options, 0xf, 5));
}

/* ---- instructions ---- */

TEST(the_three_instructions_are_recognised_with_and_without_prefixes)
{
    CHECK(decode((const uint8_t[]){ 0x0f, 0xa2 }, 2) == CPUID);
    CHECK(decode((const uint8_t[]){ 0x0f, 0x32 }, 2) == RDMSR);
    CHECK(decode((const uint8_t[]){ 0x0f, 0x30 }, 2) == WRMSR);
    CHECK(decode((const uint8_t[]){ 0x66, 0x48, 0x0f, 0x30 }, 4) == WRMSR);
    CHECK(decode((const uint8_t[]){ 0x0f, 0x31 }, 2) == OTHER);
    CHECK(decode((const uint8_t[]){ 0x0f, 0x30, 0x00 }, 3) == OTHER);
    CHECK(decode((const uint8_t[]){ 0x90 }, 1) == OTHER);
    CHECK(decode((const uint8_t[]){ 0x66 }, 1) == OTHER);
}

/* ---- registers ---- */

TEST(after_a_reset_every_class_may_fill_all_ways)
{
    boot("l3ways=20,l3shared=0,l2=1,l2ways=8");
    CHECK(msr_read(&m, 0, IA32_L3_QOS_MASK_0) == 0xfffff);
    CHECK(msr_read(&m, 3, IA32_L3_QOS_MASK_0 + 127) == 0xfffff);
    CHECK(msr_read(&m, 1, IA32_L2_QOS_MASK_0 + 63) == 0xff);
    CHECK(msr_read(&m, 0, IA32_L2_QOS_EXT_BW_THRTL_0) == 0);
    CHECK(msr_read(&m, 0, IA32_L3_QOS_CFG) == 0);
}

TEST(after_a_reset_amds_bandwidth_is_unlimited)
{
    boot("amd=1,bmec=1");
    CHECK(msr_read(&m, 0, AMD_MBA_BW_BASE + 7) == 2048);
    CHECK(msr_read(&m, 0, AMD_QOS_EVT_CFG_0) == 0x7f);
    CHECK(msr_read(&m, 0, AMD_QOS_EVT_CFG_0 + 1) == 0x15);
}

TEST(slow_memory_and_devices_have_registers_of_their_own)
{
    boot("amd=1,smba=1,sdciae=1");
    CHECK(msr_read(&m, 0, AMD_SMBA_BW_BASE + 7) == 2048);
    CHECK(msr_read(&m, 0, AMD_L3_QOS_EXT_CFG) == 0);
    msr_write(&m, 0, AMD_SMBA_BW_BASE + 7, 8);
    msr_write(&m, 0, AMD_L3_QOS_EXT_CFG, 2);
    CHECK(msr_read(&m, 1, AMD_SMBA_BW_BASE + 7) == 8);
    CHECK(msr_read(&m, 1, AMD_MBA_BW_BASE + 7) == 2048);
    CHECK(msr_read(&m, 1, AMD_L3_QOS_EXT_CFG) == 2);
    CHECK(msr_read(&m, 2, AMD_L3_QOS_EXT_CFG) == 0);
    boot("amd=1");
    CHECK(!msr_ours(&m.options, AMD_SMBA_BW_BASE));
    CHECK(!msr_ours(&m.options, AMD_L3_QOS_EXT_CFG));
}

TEST(a_mask_holds_for_all_cpus_of_its_cache_and_no_other)
{
    boot("l2=1");
    msr_write(&m, 0, IA32_L3_QOS_MASK_0 + 1, 0x7);
    msr_write(&m, 0, IA32_L2_QOS_MASK_0 + 1, 0x3);
    CHECK(msr_read(&m, 1, IA32_L3_QOS_MASK_0 + 1) == 0x7);
    CHECK(msr_read(&m, 2, IA32_L3_QOS_MASK_0 + 1) == 0x7ff);
    CHECK(msr_read(&m, 0, IA32_L3_QOS_MASK_0) == 0x7ff);
    CHECK(msr_read(&m, 0, IA32_L2_QOS_MASK_0 + 1) == 0x3);
    CHECK(msr_read(&m, 1, IA32_L2_QOS_MASK_0 + 1) == 0xffff);
}

TEST(there_are_no_registers_of_what_the_cpu_lacks)
{
    boot("");
    CHECK(msr_ours(&m.options, IA32_L3_QOS_MASK_0));
    CHECK(msr_ours(&m.options, IA32_L3_QOS_MASK_0 + 127));
    CHECK(!msr_ours(&m.options, IA32_L2_QOS_MASK_0));
    CHECK(msr_ours(&m.options, IA32_L2_QOS_EXT_BW_THRTL_0));
    CHECK(!msr_ours(&m.options, AMD_MBA_BW_BASE));
    CHECK(!msr_ours(&m.options, AMD_QOS_EVT_CFG_0));
    CHECK(msr_ours(&m.options, IA32_QM_CTR));
    CHECK(!msr_ours(&m.options, 0x10));
    boot("amd=1");
    CHECK(!msr_ours(&m.options, IA32_L2_QOS_EXT_BW_THRTL_0));
    CHECK(msr_ours(&m.options, AMD_MBA_BW_BASE));
    CHECK(!msr_ours(&m.options, AMD_QOS_EVT_CFG_0));
}

/* ---- counters ---- */

TEST(traffic_is_charged_to_the_rmid_and_cache_where_it_happened)
{
    boot("bytes=8,localpct=75,upscale=1");
    associate(0, 5, 0);
    counters_charge(&m, 0, 1000);
    CHECK(counters_read(&m, 0, select_event(EVENT_TOTAL, 5)) == 8000);
    CHECK(counters_read(&m, 0, select_event(EVENT_LOCAL, 5)) == 6000);
    CHECK(counters_read(&m, 0, select_event(EVENT_TOTAL, 0)) == 0);
    CHECK(counters_read(&m, 1, select_event(EVENT_TOTAL, 5)) == 0);
}

TEST(work_is_charged_once)
{
    boot("bytes=1,upscale=1");
    counters_charge(&m, 0, 100);
    counters_charge(&m, 0, 100);
    CHECK(counter(0, 0)->total == 100);
    associate(0, 1, 0);
    counters_charge(&m, 0, 130);
    CHECK(counter(0, 0)->total == 100);
    CHECK(counter(0, 1)->total == 30);
}

TEST(a_counter_is_in_units_and_wraps)
{
    boot("upscale=4096,mbmoff=0");
    counter(0, 0)->total = 10 * 4096 + 4095;
    CHECK(counters_read(&m, 0, select_event(EVENT_TOTAL, 0)) == 10);
    counter(0, 0)->total = ((1ull << 24) + 3) * 4096;
    CHECK(counters_read(&m, 0, select_event(EVENT_TOTAL, 0)) == 3);
    boot("upscale=4096,mbmoff=8");
    counter(0, 0)->total = ((1ull << 24) + 3) * 4096;
    CHECK(counters_read(&m, 0, select_event(EVENT_TOTAL, 0)) == (1ull << 24) + 3);
}

TEST(throttling_holds_back_its_share)
{
    boot("bytes=1,upscale=1");
    msr_write(&m, 0, IA32_L2_QOS_EXT_BW_THRTL_0 + 2, 40);
    associate(0, 1, 2);
    counters_charge(&m, 0, 1000);
    CHECK(counter(0, 1)->total == 600);
    associate(2, 1, 2);
    counters_charge(&m, 2, 1000);
    CHECK(counter(1, 1)->total == 1000);
}

TEST(an_rmid_fills_its_classes_ways_and_no_more)
{
    boot("bytes=1,l3size=1100000,l3ways=11");
    msr_write(&m, 0, IA32_L3_QOS_MASK_0 + 1, 0x7);
    associate(0, 1, 1);
    counters_charge(&m, 0, 250000);
    CHECK(counter(0, 1)->occupancy == 250000);
    counters_charge(&m, 0, 99000000);
    CHECK(counter(0, 1)->occupancy == 300000);
}

TEST(an_assigned_counter_counts_one_event_of_an_rmid_from_0_on)
{
    uint64_t third = 3ull << 48, of_5 = 5ull << 32, total = 0x7f, local = 0x15;
    uint64_t select_third = EVTSEL_EXTENDED | EVENT_ASSIGNED | 3ull << 32;

    boot("amd=1,abmc=4,bytes=8,localpct=75,upscale=1");
    associate(0, 5, 0);
    counters_charge(&m, 0, 1000);
    msr_write(&m, 0, AMD_L3_QOS_ABMC_CFG, total | of_5 | third | ABMC_COUNTS | ABMC_APPLY);
    CHECK(counters_read(&m, 0, select_third) == 0);
    counters_charge(&m, 0, 2000);
    CHECK(counters_read(&m, 0, select_third) == 8000);
    CHECK(counters_read(&m, 0, select_event(EVENT_TOTAL, 5)) == 16000);
    CHECK(counters_read(&m, 1, select_third) == 0);
    msr_write(&m, 0, AMD_L3_QOS_ABMC_CFG, local | of_5 | third | ABMC_COUNTS);
    CHECK(counters_read(&m, 0, select_third) == 8000);
    msr_write(&m, 0, AMD_L3_QOS_ABMC_CFG, local | of_5 | third | ABMC_COUNTS | ABMC_APPLY);
    counters_charge(&m, 0, 3000);
    CHECK(counters_read(&m, 0, select_third) == 6000);
    msr_write(&m, 0, AMD_L3_QOS_ABMC_CFG, local | of_5 | third | ABMC_APPLY);
    counters_charge(&m, 0, 4000);
    CHECK(counters_read(&m, 0, select_third) == 0);
    CHECK(counters_read(&m, 0, EVTSEL_EXTENDED | EVENT_ASSIGNED | 4ull << 32) == QM_CTR_ERROR);
    boot("amd=1");
    CHECK(!msr_ours(&m.options, AMD_L3_QOS_ABMC_CFG));
}

TEST(what_a_narrowed_mask_does_not_cover_goes_as_traffic_comes)
{
    boot("bytes=1,l3size=1100000,l3ways=11");
    counters_charge(&m, 0, 5000000);
    CHECK(counter(0, 0)->occupancy == 1100000);
    msr_write(&m, 0, IA32_L3_QOS_MASK_0, 0x1);
    counters_charge(&m, 0, 5000000);
    CHECK(counter(0, 0)->occupancy == 1100000);
    counters_charge(&m, 0, 5300000);
    CHECK(counter(0, 0)->occupancy == 800000);
    counters_charge(&m, 0, 9000000);
    CHECK(counter(0, 0)->occupancy == 100000);
}

TEST(with_cdp_a_class_fills_the_ways_of_either_mask)
{
    boot("l3size=1100000,l3ways=11");
    msr_write(&m, 0, IA32_L3_QOS_MASK_0 + 2, 0x3);
    msr_write(&m, 0, IA32_L3_QOS_MASK_0 + 3, 0x6);
    CHECK(counters_share(&m, 0, 1) == 1100000);
    msr_write(&m, 0, IA32_L3_QOS_CFG, 1);
    CHECK(counters_share(&m, 0, 1) == 300000);
}

TEST(occupancy_of_an_rmid_that_nobody_runs_under_fades)
{
    boot("halflife=1000");
    associate(0, 1, 0);
    counter(0, 1)->occupancy = 8000;
    counter(0, 2)->occupancy = 8000;
    counters_settle(&m, 0, 2 * SECOND);
    CHECK(counter(0, 1)->occupancy == 8000);
    CHECK(fabs(counter(0, 2)->occupancy - 2000) < 1e-6);
    counters_settle(&m, 0, 3 * SECOND);
    CHECK(fabs(counter(0, 2)->occupancy - 1000) < 1e-6);
}

TEST(all_rmids_together_fit_into_the_cache)
{
    boot("l3size=900000");
    counter(0, 0)->occupancy = 600000;
    counter(0, 1)->occupancy = 1200000;
    associate(0, 1, 0);
    counters_settle(&m, 0, 0);
    CHECK(fabs(counter(0, 0)->occupancy - 300000) < 1);
    CHECK(fabs(counter(0, 1)->occupancy - 600000) < 1);
}

TEST(a_bad_rmid_or_event_is_an_error)
{
    boot("rmids=32,mbml=0");
    CHECK(counters_read(&m, 0, select_event(EVENT_TOTAL, 32)) == QM_CTR_ERROR);
    CHECK(counters_read(&m, 0, select_event(EVENT_LOCAL, 0)) == QM_CTR_ERROR);
    CHECK(counters_read(&m, 0, select_event(0, 0)) == QM_CTR_ERROR);
    CHECK(counters_read(&m, 0, select_event(4, 0)) == QM_CTR_ERROR);
}

/* ---- control ---- */

TEST(a_counter_can_be_made_to_say_that_it_is_unavailable_or_in_error)
{
    boot("");
    msr_write(&m, 0, CONTROL_UNAVAILABLE, 3);
    CHECK(counters_read(&m, 0, select_event(EVENT_TOTAL, 3)) == QM_CTR_UNAVAILABLE);
    CHECK(counters_read(&m, 0, select_event(EVENT_OCCUPANCY, 3)) == QM_CTR_UNAVAILABLE);
    CHECK(counters_read(&m, 1, select_event(EVENT_TOTAL, 3)) == 0);
    msr_write(&m, 0, CONTROL_ERROR, 3);
    CHECK(counters_read(&m, 0, select_event(EVENT_TOTAL, 3)) == QM_CTR_ERROR);
}

TEST(traffic_begins_anew_after_unavailable_and_goes_on_after_an_error)
{
    boot("upscale=1");
    msr_write(&m, 0, CONTROL_TRAFFIC, 3ull << 48 | 5000);
    CHECK(counters_read(&m, 0, select_event(EVENT_TOTAL, 3)) == 5000);
    CHECK(counters_read(&m, 0, select_event(EVENT_LOCAL, 3)) == 5000);
    msr_write(&m, 0, CONTROL_ERROR, 3);
    msr_write(&m, 0, CONTROL_NORMAL, 3);
    CHECK(counters_read(&m, 0, select_event(EVENT_TOTAL, 3)) == 5000);
    msr_write(&m, 0, CONTROL_UNAVAILABLE, 3);
    msr_write(&m, 0, CONTROL_NORMAL, 3);
    CHECK(counters_read(&m, 0, select_event(EVENT_TOTAL, 3)) == 0);
}

TEST(occupancy_can_be_set)
{
    boot("upscale=1");
    msr_write(&m, 2, CONTROL_OCCUPANCY, 7ull << 48 | 123456);
    CHECK(counters_read(&m, 1, select_event(EVENT_OCCUPANCY, 7)) == 123456);
    CHECK(counters_read(&m, 0, select_event(EVENT_OCCUPANCY, 7)) == 0);
}

int main(int argc, char **argv)
{
    bool failed = false;

    for (struct test *test = all_tests; test; test = test->next) {
        bool chosen = argc == 1;

        for (int i = 1; i < argc; i++)
            chosen |= !strcmp(argv[i], test->name);
        if (!chosen)
            continue;
        check_failed = false;
        test->run();
        printf("%s %s\n", check_failed ? "FAILED" : "ok", test->name);
        failed |= check_failed;
    }
    return failed;
}
