/* SPDX-License-Identifier: Apache-2.0 */
#include "watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "clock.h"
#include "counters.h"
#include "report.h"
#include "stall.h"
#include "trace.h"

/* Lines of code are counted from here on, far from any physical address. */
#define CODE (1ull << 57)
#define CODE_OF_USER (1ull << 58) /* on the way to fetched(), and in no line's number */

/* What a CPU waits for. */
struct patience {
    struct debt debt;
    struct pace pace;
} __attribute__((aligned(LINE)));

/* Where a CPU's accesses were served from, and how long they took at the channel, for its performance counters. */
struct seen {
    uint64_t served[RINGS][SERVERS];
    uint64_t channel_ns[RINGS];
} __attribute__((aligned(LINE)));

/* AMD's limit is that of a class in a domain. */
struct common {
    pthread_mutex_t lock;
    struct pace paces[MAX_MBA_CLOS];
};

static struct machine *machine;
static struct hierarchy hierarchy;
static uint64_t places; /* in a page, whose lines are modelled */
static struct patience patience[MAX_CPUS];
static struct common common[MAX_CPUS];
static struct seen seen[MAX_CPUS];
static struct visitor visitors[MAX_CPUS];

struct hierarchy *watch_counts(void)
{
    return &hierarchy;
}

bool watch_begin(struct machine *m)
{
    machine = m;
    for (unsigned i = 0; i < MAX_CPUS; i++)
        pthread_mutex_init(&common[i].lock, NULL);
    return hierarchy_make(&hierarchy, m->ncpus, m->options.sockets, m->options.rmids);
}

void watch_take(unsigned domain, unsigned rmid)
{
    if (rmid < hierarchy.rmids)
        counters_take(machine, domain, rmid, hierarchy_traffic(&hierarchy, domain, rmid),
                      hierarchy_share(&hierarchy, domain, rmid).lines * LINE);
}

static void empty_caches(const struct geometry *g)
{
    struct extra extra = { .evictions = machine->options.evictions, .curves = machine->options.curves };

    if (hierarchy_extra(&hierarchy, &extra) && hierarchy_caches(&hierarchy, g))
        return;
    fprintf(stderr, "rdt plugin: no memory for the caches\n");
    exit(1);
}

void watch_turn(enum turn turn)
{
    static const char *const why[TURNS] = { "off", "on", "emptied", "asked" };
    struct geometry g = turn == TURN_ON ? machine_geometry(&machine->options) : hierarchy.geometry;

    report(&hierarchy, now_ns() / 1e9, why[turn]);
    trace_settle();
    if (turn == TURN_REPORT)
        return;
    for (unsigned domain = 0; machine->modelled && domain < hierarchy.domains; domain++)
        for (unsigned rmid = 0; rmid < hierarchy.rmids; rmid++)
            watch_take(domain, rmid);
    machine->turns++;
    if (turn != TURN_EMPTY)
        machine->modelled = turn == TURN_ON;
    if (machine->modelled)
        empty_caches(&g);
    else
        hierarchy_without_caches(&hierarchy);
    places = sample_places(g.sample);
}

/* Returns for how long it was. */
static uint64_t sleep_for(unsigned cpu, unsigned rmid, uint64_t ns)
{
    uint64_t begin = now_ns(), slept;
    struct timespec end = { (begin + ns) / SECOND_NS, (begin + ns) % SECOND_NS };

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        ;
    slept = now_ns() - begin;
    hierarchy_waited(&hierarchy, cpu, rmid, slept);
    return slept;
}

/* Returns for how long to sleep until a CPU may go on that got some bytes from memory. */
static uint64_t pace(unsigned cpu, uint64_t bytes, uint64_t limit)
{
    struct common *shared = &common[machine_domain_of(machine, cpu)];
    uint64_t ns;

    if (!machine->options.amd)
        return pace_take(&patience[cpu].pace, now_ns(), bytes, limit);
    pthread_mutex_lock(&shared->lock);
    ns = pace_take(&shared->paces[machine_clos(&machine->cpus[cpu])], now_ns(), bytes, limit);
    pthread_mutex_unlock(&shared->lock);
    return ns;
}

/* Returns how long some lines take a CPU at the channel that it shares with the others of its domain. */
static uint64_t at_channel(unsigned cpu, unsigned lines)
{
    unsigned count = machine->ncpus / machine->options.sockets, first = machine_domain_of(machine, cpu) * count;
    uint64_t rate = machine->options.channel;

    if (!lines || !rate)
        return 0;
    return channel_visit(&visitors[first], count, cpu - first, now_ns(), lines * LINE * SECOND_NS / rate);
}

/* An access stands for others in sets that are not modelled, and they for their time. */
static void stand_still(unsigned cpu, unsigned rmid, struct outcome outcome, enum ring ring)
{
    uint64_t weight = 1ull << hierarchy.geometry.sample;
    enum served served = outcome.served;
    uint64_t cost = served == FROM_L3 ? machine->options.l3_ns : machine->options.memory_ns;
    uint64_t channel = at_channel(cpu, (outcome.written + (served == FROM_MEMORY)) * weight);
    struct debt *debt = &patience[cpu].debt;
    uint64_t ns, limit;

    seen[cpu].channel_ns[ring] += channel;
    if (cost + channel && (ns = debt_owe(debt, cost * weight + channel)))
        debt_slept(debt, sleep_for(cpu, rmid, ns));
    if (served == FROM_MEMORY && (limit = stall_limit(machine, cpu)) && (ns = pace(cpu, LINE * weight, limit)))
        sleep_for(cpu, rmid, ns);
    if (ring == USER && stall_is_spent(machine, &hierarchy, cpu))
        sleep_for(cpu, rmid, STALL_SPENT_NS);
}

static void access_line(unsigned cpu, uint64_t number, enum kind kind, enum ring ring)
{
    struct access a = { .cpu = cpu, .domain = machine_domain_of(machine, cpu), .kind = kind, .number = number };
    struct outcome outcome;

    a.rmid = machine_rmid(&machine->cpus[cpu]);
    if (a.rmid >= hierarchy.rmids)
        return;
    a.l2_mask = machine_l2_mask(machine, cpu, kind == FETCH);
    a.l3_mask = machine_l3_mask(machine, cpu, kind == FETCH);
    outcome = trace_access(&hierarchy, &a);
    seen[cpu].served[ring][outcome.served] += 1ull << hierarchy.geometry.sample;
    if (outcome.served != FROM_L2)
        stand_still(cpu, a.rmid, outcome, ring);
}

static bool modelled(uint64_t address)
{
    return places >> (address >> LINE_BITS) % PAGE_LINES & 1;
}

/* After a load or store. A line's place in its page is the same in a virtual address. */
static void accessed(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *ring)
{
    struct qemu_plugin_hwaddr *where;

    if (!modelled(address))
        return;
    where = qemu_plugin_get_hwaddr(info, address);
    if (where && !qemu_plugin_hwaddr_is_io(where))
        access_line(cpu, qemu_plugin_hwaddr_phys_addr(where) >> LINE_BITS,
                    qemu_plugin_mem_is_store(info) ? STORE : LOAD, (uintptr_t)ring);
}

static void fetched(unsigned cpu, void *number)
{
    access_line(cpu, (uintptr_t)number & ~CODE_OF_USER, FETCH, (uintptr_t)number & CODE_OF_USER ? USER : KERNEL);
}

/* Code that is not in memory, such as a device's, has no host address. */
void watch_block(struct qemu_plugin_tb *block, enum ring ring)
{
    uintptr_t last = 0, code = ring == USER ? CODE | CODE_OF_USER : CODE;

    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
        uintptr_t first = (uintptr_t)qemu_plugin_insn_haddr(insn), end = first + qemu_plugin_insn_size(insn);

        qemu_plugin_register_vcpu_mem_cb(insn, accessed, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
                                         (void *)(uintptr_t)ring);
        for (uintptr_t line = first >> LINE_BITS; first && line <= (end - 1) >> LINE_BITS; line++) {
            if (line != last && modelled(line << LINE_BITS))
                qemu_plugin_register_vcpu_insn_exec_cb(insn, fetched, QEMU_PLUGIN_CB_NO_REGS, (void *)(code | line));
            last = line;
        }
    }
}

void watch_served(unsigned cpu, enum ring ring, struct done *done)
{
    memcpy(done->served, seen[cpu].served[ring], sizeof done->served);
    done->channel_ns = seen[cpu].channel_ns[ring];
}

void watch_executed(unsigned cpu, uint64_t instructions)
{
    unsigned rmid = machine_rmid(&machine->cpus[cpu]);

    if (machine->modelled && rmid < hierarchy.rmids)
        hierarchy_executed(&hierarchy, cpu, rmid, instructions);
}

void watch_flush(unsigned cpu)
{
    trace_flush(&hierarchy, cpu, machine_domain_of(machine, cpu));
}
