/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what stands around the model of the caches; the model's own are in tests/kernel/cachemodel. */
#include "../channel.h"
#include "../clock.h"
#include "../control.h"
#include "../counters.h"
#include "../decode.h"
#include "../msr.h"
#include "../options.h"
#include "../stall.h"
#include "../window.h"
#include "booted.h"
#include "check.h"

enum { CLASS = 1 };

static uint64_t total(unsigned domain, unsigned rmid)
{
    return counters_read(&m, domain, (uint64_t)rmid << 32 | EVENT_TOTAL);
}

/* ---- masks ---- */

TEST(a_class_fills_the_ways_of_its_mask)
{
    boot("l2=1,l2ways=8");
    msr_write(&m, 0, IA32_L3_QOS_MASK_0 + CLASS, 0x7);
    msr_write(&m, 0, IA32_L2_QOS_MASK_0 + CLASS, 0x3);
    CHECK(machine_l3_mask(&m, 0, false) == 0x7ff);
    associate(0, 5, CLASS);
    associate(1, 5, CLASS);
    associate(2, 5, CLASS);
    CHECK(machine_l3_mask(&m, 0, false) == 0x7);
    CHECK(machine_l3_mask(&m, 0, true) == 0x7);
    CHECK(machine_l3_mask(&m, 1, false) == 0x7);
    CHECK(machine_l3_mask(&m, 2, false) == 0x7ff);
    CHECK(machine_l2_mask(&m, 0, false) == 0x3);
    CHECK(machine_l2_mask(&m, 1, false) == 0xff);
}

TEST(with_cdp_code_and_data_have_masks_of_their_own)
{
    boot("l2=1,l2cdp=1,l2ways=8");
    msr_write(&m, 0, IA32_L3_QOS_CFG, 1);
    msr_write(&m, 0, IA32_L2_QOS_CFG, 1);
    for (unsigned code = 0; code < 2; code++) {
        msr_write(&m, 0, IA32_L3_QOS_MASK_0 + 2 * CLASS + code, code ? 0x700 : 0x00f);
        msr_write(&m, 0, IA32_L2_QOS_MASK_0 + 2 * CLASS + code, code ? 0xc0 : 0x01);
    }
    associate(0, 5, CLASS);
    CHECK(machine_l3_mask(&m, 0, false) == 0x00f);
    CHECK(machine_l3_mask(&m, 0, true) == 0x700);
    CHECK(machine_l2_mask(&m, 0, false) == 0x01);
    CHECK(machine_l2_mask(&m, 0, true) == 0xc0);
}

TEST(a_cache_that_cannot_be_allocated_is_everybodys)
{
    boot("l3=0");
    associate(0, 5, CLASS);
    CHECK(machine_l3_mask(&m, 0, false) == 0x7ff);
    CHECK(machine_l2_mask(&m, 0, true) == 0xffff);
}

/* ---- counters ---- */

TEST(while_caches_are_modelled_no_counter_is_made_up)
{
    boot("bytes=8,upscale=1,halflife=1");
    counters_charge(&m, 0, 1000);
    CHECK(total(0, 0) == 8000);
    m.modelled = true;
    counters_charge(&m, 0, 5000);
    CHECK(total(0, 0) == 8000);
    counters_take(&m, 0, 0, 640, 4096);
    counters_settle(&m, 0, SECOND_NS);
    CHECK(total(0, 0) == 8640);
    CHECK(counters_read(&m, 0, EVENT_LOCAL) == 6640);
    CHECK(counters_read(&m, 0, EVENT_OCCUPANCY) == 4096);
    counters_take(&m, 0, 0, 640, 64);
    CHECK(total(0, 0) == 8640);
    CHECK(counters_read(&m, 0, EVENT_OCCUPANCY) == 64);
}

TEST(traffic_goes_on_from_where_it_was_when_modelling_ends)
{
    boot("bytes=8,upscale=1");
    m.modelled = true;
    counters_charge(&m, 0, 5000);
    counters_take(&m, 0, 0, 640, 0);
    m.modelled = false;
    counters_charge(&m, 0, 5001);
    CHECK(total(0, 0) == 648);
}

/* ---- registers ---- */

TEST(knobs_are_registers_that_refuse_what_is_out_of_range)
{
    boot("sample=2,memory_ns=90");
    CHECK(msr_ours(&m.options, CONTROL_SAMPLE));
    CHECK(msr_read(&m, 3, CONTROL_SAMPLE) == 2);
    CHECK(msr_read(&m, 0, CONTROL_MEMORY_NS) == 90);
    msr_write(&m, 0, CONTROL_SAMPLE, 5);
    CHECK(m.options.sample == 5);
    msr_write(&m, 0, CONTROL_SAMPLE, 6);
    msr_write(&m, 0, CONTROL_SAMPLE, UINT64_MAX);
    CHECK(m.options.sample == 5);
    msr_write(&m, 0, CONTROL_MBA_UNIT, 2000000);
    CHECK(m.options.mba_unit == 2000000);
}

TEST(a_register_says_whether_caches_are_modelled)
{
    boot("");
    CHECK(msr_read(&m, 0, CONTROL_CACHE) == 0);
    m.modelled = true;
    m.turns = 3;
    CHECK(msr_read(&m, 0, CONTROL_CACHE) == (3 << 8 | 1));
    msr_write(&m, 0, CONTROL_CACHE, TURN_OFF);
    CHECK(m.modelled);
}

TEST(the_counts_of_each_rmid_are_in_a_window)
{
    struct hierarchy h;
    struct geometry g = { .l2_sets = 1, .l2_ways = 1, .l3_sets = 2, .l3_ways = 2 };
    struct access a = { .rmid = 2, .kind = STORE, .number = 7, .l2_mask = 1, .l3_mask = 2 };

    boot("rmids=3");
    CHECK(hierarchy_make(&h, 2, 1, 3) && hierarchy_caches(&h, &g));
    CHECK(hierarchy_access(&h, &a).served == FROM_MEMORY);
    hierarchy_executed(&h, 0, 2, 11);
    hierarchy_waited(&h, 1, 2, 13);
    CHECK(window_ours(&m.options, WINDOW_COUNTS + 47) && !window_ours(&m.options, WINDOW_COUNTS + 48));
    CHECK(window_ours(&m.options, WINDOW_WAYS + 95) && !window_ours(&m.options, WINDOW_WAYS + 96));
    CHECK(window_read(&h, 0, WINDOW_COUNTS + 32 + 4 * STORE + FROM_MEMORY) == 1);
    CHECK(window_read(&h, 0, WINDOW_COUNTS + 32 + 4 * LOAD + FROM_MEMORY) == 0);
    CHECK(window_read(&h, 0, WINDOW_COUNTS + 32 + COUNT_INSTRUCTIONS) == 11);
    CHECK(window_read(&h, 0, WINDOW_COUNTS + 32 + COUNT_WAITED_NS) == 13);
    CHECK(window_read(&h, 0, WINDOW_COUNTS + 32 + COUNT_OCCUPANCY) == 64);
    CHECK(window_read(&h, 0, WINDOW_WAYS + 64 + 1) == 64);
    CHECK(window_read(&h, 0, WINDOW_WAYS + 64 + 0) == 0);
    CHECK(window_read(&h, 0, WINDOW_WAYS + 64 + 31) == 0);
    CHECK(window_ours(&m.options, WINDOW_EVICTIONS + 8) && !window_ours(&m.options, WINDOW_EVICTIONS + 9));
    CHECK(window_read(&h, 0, WINDOW_EVICTIONS + 5) == 0);
    CHECK(hierarchy_extra(&h, &(struct extra){ .evictions = true }));
    a.number = 9;
    a.rmid = 1;
    CHECK(hierarchy_access(&h, &a).served == FROM_MEMORY);
    CHECK(window_read(&h, 0, WINDOW_EVICTIONS + 3 + 2) == 1);
    CHECK(window_read(&h, 0, WINDOW_EVICTIONS + 6 + 1) == 0);
    CHECK(window_ours(&m.options, WINDOW_DISTANCES + 191) && !window_ours(&m.options, WINDOW_DISTANCES + 192));
    CHECK(window_read(&h, 0, WINDOW_DISTANCES + 64 + BEYOND) == 0);
    CHECK(hierarchy_extra(&h, &(struct extra){ .curves = 1 }) && hierarchy_caches(&h, &g));
    for (unsigned i = 0; i < 2; i++)
        for (a.number = 11; a.number < 15; a.number += 2)
            hierarchy_access(&h, &a);
    CHECK(window_read(&h, 0, WINDOW_DISTANCES + 64 + BEYOND) == 2);
    CHECK(window_read(&h, 0, WINDOW_DISTANCES + 64 + 1) == 2);
    CHECK(window_read(&h, 0, WINDOW_DISTANCES + 64 + 0) == 0);
    a.rmid = 2;
    hierarchy_access(&h, &a);
    CHECK(window_read(&h, 0, WINDOW_DISTANCES + 128 + BEYOND) == 0);
    hierarchy_free(&h);
}

TEST(an_rmid_may_have_so_many_cycles_of_its_domain)
{
    struct hierarchy h;
    struct access a = { .cpu = 1, .domain = 0, .rmid = 5, .kind = LOAD, .number = 7, .l2_mask = 1, .l3_mask = 1 };
    struct geometry g;

    boot("sample=0");
    g = machine_geometry(&m.options);
    CHECK(hierarchy_make(&h, 4, 2, m.options.rmids) && hierarchy_caches(&h, &g));
    associate(0, 5, CLASS);
    associate(2, 5, CLASS);
    hierarchy_access(&h, &a); /* from memory, on another CPU of the domain */
    hierarchy_executed(&h, 0, 5, 100);
    CHECK(!stall_is_spent(&m, &h, 0));
    CHECK(msr_ours(&m.options, CONTROL_CYCLES + 5));
    CHECK(!msr_ours(&m.options, CONTROL_CYCLES + m.options.rmids));
    msr_write(&m, 0, CONTROL_CYCLES + 5, 101 + MEMORY_CYCLES);
    CHECK(msr_read(&m, 1, CONTROL_CYCLES + 5) == 101 + MEMORY_CYCLES);
    CHECK(!stall_is_spent(&m, &h, 0));
    hierarchy_executed(&h, 0, 5, 1);
    CHECK(stall_is_spent(&m, &h, 0));
    CHECK(!stall_is_spent(&m, &h, 2)); /* of another domain */
    associate(0, 6, CLASS);
    CHECK(!stall_is_spent(&m, &h, 0));
    associate(0, 5, CLASS);
    msr_write(&m, 0, CONTROL_CYCLES + 5, 0);
    CHECK(!stall_is_spent(&m, &h, 0));
    hierarchy_free(&h);
}

TEST(emptying_all_caches_is_recognised)
{
    CHECK(decode((const uint8_t[]){ 0x0f, 0x09 }, 2) == WBINVD);
    CHECK(decode((const uint8_t[]){ 0x0f, 0x08 }, 2) == OTHER);
}

/* ---- standing still ---- */

TEST(a_cpu_sleeps_for_what_it_owes_and_no_more)
{
    struct debt d = { 0 };
    uint64_t asked = 0;

    for (unsigned line = 0; line < 10000; line++) {
        uint64_t ns = debt_owe(&d, 700);

        if (ns) {
            CHECK(ns >= STALL_GRAIN_NS);
            asked += ns + 60000;
            debt_slept(&d, ns + 60000); /* which is too long */
        }
    }
    CHECK(asked <= 7000000 + 60000);
    CHECK(asked >= 7000000 - STALL_GRAIN_NS);
}

TEST(lines_come_no_faster_than_their_rate)
{
    const uint64_t rate = 10000000;
    struct pace p = { 0 };
    uint64_t begin = 5 * SECOND_NS, now = begin, bytes = 0;

    /* Who needs 1 us for a line himself, which would be 64 MB/s, and now and then does something else. */
    for (unsigned line = 0; line < 100000; line++) {
        now += line % 1000 ? 1000 : 3000000;
        now += pace_take(&p, now, 64, rate);
        bytes += 64;
        CHECK(bytes <= rate * (now - begin + 2 * STALL_GRAIN_NS) / SECOND_NS + 64);
    }
    CHECK(now - begin < bytes * SECOND_NS / rate + 100 * 3000000ull + SECOND_NS / 100);
}

TEST(who_is_slower_than_the_rate_never_waits)
{
    struct pace p = { 0 };

    for (uint64_t now = SECOND_NS; now < 2 * SECOND_NS; now += 7000)
        CHECK(pace_take(&p, now, 64, 10000000) == 0);
}

/* ---- the channel ---- */

TEST(lines_go_through_the_channel_one_after_the_other)
{
    struct channel c = { 0 };

    CHECK(channel_move(&c, 1000, 64) == 1064);
    CHECK(channel_move(&c, 1000, 64) == 1128);
    CHECK(channel_move(&c, 1128, 64) == 1192);
    CHECK(channel_move(&c, 5000, 128) == 5128);
}

TEST(who_is_at_the_channel_all_the_time_doubles_what_another_one_takes)
{
    struct visitor v[3] = { 0 };
    uint64_t now = 100 * CHANNEL_WINDOW_NS;

    CHECK(channel_visit(v, 3, 0, now, 1000) == 1000);
    /* What was done in this window counts in the next one. */
    CHECK(channel_visit(v, 3, 1, now, 4 * CHANNEL_WINDOW_NS) == 4 * CHANNEL_WINDOW_NS);
    CHECK(channel_visit(v, 3, 0, now, 1000) == 1000);
    now += CHANNEL_WINDOW_NS;
    CHECK(channel_visit(v, 3, 0, now, 1000) == 2000);
    CHECK(channel_visit(v, 3, 2, now, 1000) == 2000);
    CHECK(channel_visit(v, 3, 1, now, 1000) == 1000);
    now += 2 * CHANNEL_WINDOW_NS;
    CHECK(channel_visit(v, 3, 0, now, 1000) == 1000);
}

TEST(a_class_has_its_share_of_the_bandwidth)
{
    boot("bandwidth=50000000");
    associate(0, 5, CLASS);
    CHECK(stall_limit(&m, 0) == 0);
    msr_write(&m, 0, IA32_L2_QOS_EXT_BW_THRTL_0 + CLASS, 90);
    CHECK(stall_limit(&m, 0) == 5000000);
    CHECK(stall_limit(&m, 1) == 0);
    msr_write(&m, 0, IA32_L2_QOS_EXT_BW_THRTL_0 + CLASS, 100);
    CHECK(stall_limit(&m, 0) == 500000);
    boot("mba=0");
    CHECK(stall_limit(&m, 0) == 0);
}

TEST(amds_bandwidth_is_a_number_of_units)
{
    boot("amd=1,mba_unit=1000000");
    associate(0, 5, CLASS);
    CHECK(stall_limit(&m, 0) == 0);
    msr_write(&m, 0, AMD_MBA_BW_BASE + CLASS, 16);
    CHECK(stall_limit(&m, 0) == 16000000);
    msr_write(&m, 0, AMD_MBA_BW_BASE + CLASS, 0);
    CHECK(stall_limit(&m, 0) == 1000000);
    msr_write(&m, 0, AMD_MBA_BW_BASE + CLASS, 2048);
    CHECK(stall_limit(&m, 0) == 0);
}
