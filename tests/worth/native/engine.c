/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "hierarchy.h"
#include "machine.h"
#include "msr.h"
#include "options.h"
#include "stall.h"
#include "trace.h"

/* Time is counted in parts of a cycle, for a line may take a fraction of one on the channel. */
enum { TICKS = 1024, MAX_OVERLAP = 64, REGION_BITS = 40 };

#define NEVER UINT64_MAX

struct task {
    unsigned cpu, rmid, clos;
    bool stopped, scattered;
    uint64_t chance;
    uint64_t region; /* its first line */
    struct stream *streams;
    unsigned count, now;
    uint64_t wakes; /* until then it sleeps */
    uint64_t ends;  /* then it goes on to its next load */
    struct progress progress;
};

struct core {
    uint64_t clock;
    uint64_t underway[MAX_OVERLAP]; /* when lines come, by the order in which they were asked for */
    unsigned asked;
    struct task *task; /* whose turn it is; NULL: nobody's */
    uint64_t turn_ends;
    struct pace pace;
};

struct beside {
    uint64_t ticks, queued, throttled;
};

struct engine {
    struct machine machine;
    struct hierarchy hierarchy;
    struct timing timing;
    uint64_t line_ticks; /* of a line of a simulated set on the channel, 0 where there is no channel */
    uint64_t weight, places;
    bool traced;
    struct core cores[MAX_CPUS];
    struct channel channels[MAX_CPUS]; /* by domain */
    struct beside *beside;             /* by domain and RMID */
    struct task **tasks;
    unsigned count;
    uint64_t until;
};

struct engine *engine_make(unsigned cpus, const struct timing *timing, int argc, char **argv, char *error, size_t size)
{
    struct engine *e = calloc(1, sizeof *e);
    struct options o;
    struct geometry g;
    struct extra extra;

    options_default(&o);
    if (!e || !options_parse(&o, argc, argv, error, size) || !options_check(&o, cpus, error, size)) {
        free(e);
        return NULL;
    }
    if (o.trace && !trace_open(o.trace)) {
        free(e);
        snprintf(error, size, "trace=%s can't be made", o.trace);
        return NULL;
    }
    machine_reset(&e->machine, &o, cpus, 0);
    g = machine_geometry(&o);
    extra = (struct extra){ .evictions = o.evictions, .curves = o.curves };
    e->timing = *timing;
    e->traced = o.trace;
    e->weight = 1ull << o.sample;
    e->places = sample_places(o.sample);
    if (timing->bytes_per_cycle > 0)
        e->line_ticks = llround(LINE * e->weight * TICKS / timing->bytes_per_cycle);
    e->beside = calloc((size_t)o.sockets * o.rmids, sizeof *e->beside);
    if (!e->beside || !hierarchy_make(&e->hierarchy, cpus, o.sockets, o.rmids)) {
        free(e->beside);
        free(e);
        snprintf(error, size, "no memory");
        return NULL;
    }
    if (!hierarchy_extra(&e->hierarchy, &extra) || !hierarchy_caches(&e->hierarchy, &g)) {
        engine_free(e);
        snprintf(error, size, "no memory for the caches");
        return NULL;
    }
    return e;
}

static void free_streams(struct stream *streams, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        stream_free(&streams[i]);
    free(streams);
}

void engine_free(struct engine *e)
{
    for (unsigned i = 0; i < e->count; i++) {
        free_streams(e->tasks[i]->streams, e->tasks[i]->count);
        free(e->tasks[i]);
    }
    if (e->traced)
        trace_close();
    free(e->tasks);
    free(e->beside);
    hierarchy_free(&e->hierarchy);
    free(e);
}

static struct beside *beside(const struct engine *e, unsigned domain, unsigned rmid)
{
    return &e->beside[(size_t)domain * e->hierarchy.rmids + rmid];
}

/* Let a task go on with one of its loads. */
static void begin(struct task *t, unsigned which, uint64_t now)
{
    const struct load *load = &t->streams[which].load;

    t->now = which;
    t->ends = load->cycles ? now + load->cycles * TICKS : NEVER;
    t->wakes = load->order == IDLE ? t->ends : now;
}

bool engine_load(struct engine *e, unsigned task, const struct load *loads, unsigned count)
{
    struct task *t = e->tasks[task];
    struct stream *streams = calloc(count, sizeof *streams);
    bool good = streams;

    for (unsigned i = 0; good && i < count; i++)
        good = stream_make(&streams[i], &loads[i], &t->chance);
    if (!good) {
        free_streams(streams, streams ? count : 0);
        return false;
    }
    free_streams(t->streams, t->count);
    t->streams = streams;
    t->count = count;
    begin(t, 0, e->until);
    return true;
}

int engine_start(struct engine *e, unsigned cpu, unsigned rmid, unsigned clos, uint64_t seed, bool scattered,
                 const struct load *loads, unsigned count)
{
    struct task **tasks = realloc(e->tasks, (e->count + 1) * sizeof *tasks), *t;

    if (!tasks)
        return -1;
    e->tasks = tasks;
    t = tasks[e->count] = calloc(1, sizeof *t);
    if (!t)
        return -1;
    *t = (struct task){ .cpu = cpu, .rmid = rmid, .clos = clos, .scattered = scattered };
    t->chance = (seed + 1) * 0x9e3779b97f4a7c15ull | 1;
    /* A page of its own by chance, so that tasks do not begin with the same set. */
    t->region = ((uint64_t)(e->count + 1) << REGION_BITS) + chance_below(&t->chance, 1 << 20) * PAGE_LINES;
    e->count++;
    if (engine_load(e, e->count - 1, loads, count))
        return e->count - 1;
    e->count--;
    free(t);
    return -1;
}

void engine_assign(struct engine *e, unsigned task, unsigned cpu, unsigned rmid, unsigned clos)
{
    struct task *t = e->tasks[task];

    for (unsigned i = 0; i < e->machine.ncpus; i++)
        if (e->cores[i].task == t)
            e->cores[i].task = NULL;
    t->cpu = cpu;
    t->rmid = rmid;
    t->clos = clos;
}

void engine_stop(struct engine *e, unsigned task, bool stopped)
{
    e->tasks[task]->stopped = stopped;
}

void engine_wrmsr(struct engine *e, unsigned cpu, uint32_t msr, uint64_t value)
{
    if (msr_ours(&e->machine.options, msr))
        msr_write(&e->machine, cpu, msr, value);
}

static bool can_run(const struct task *t, unsigned cpu, uint64_t now)
{
    return t->cpu == cpu && !t->stopped && t->wakes <= now;
}

/* When the first of a CPU's tasks wakes. */
static uint64_t next_wake(const struct engine *e, unsigned cpu)
{
    uint64_t first = NEVER;

    for (unsigned i = 0; i < e->count; i++)
        if (e->tasks[i]->cpu == cpu && !e->tasks[i]->stopped && e->tasks[i]->wakes < first)
            first = e->tasks[i]->wakes;
    return first;
}

/* The task behind the one whose turn it was. */
static struct task *next_task(const struct engine *e, unsigned cpu)
{
    const struct core *core = &e->cores[cpu];
    unsigned after = 0;

    for (unsigned i = 0; i < e->count; i++)
        if (e->tasks[i] == core->task)
            after = i + 1;
    for (unsigned i = 0; i < e->count; i++) {
        struct task *t = e->tasks[(after + i) % e->count];

        if (can_run(t, cpu, core->clock))
            return t;
    }
    return NULL;
}

static void settle_loads(struct engine *e, unsigned cpu, uint64_t now)
{
    for (unsigned i = 0; i < e->count; i++) {
        struct task *t = e->tasks[i];

        while (t->cpu == cpu && t->ends <= now)
            begin(t, (t->now + 1) % t->count, t->ends);
    }
}

/* Have a CPU go on with some task, or sleep. Returns whether it has one. */
static bool schedule(struct engine *e, unsigned cpu)
{
    struct core *core = &e->cores[cpu];
    uint64_t wake;

    settle_loads(e, cpu, core->clock);
    core->task = next_task(e, cpu);
    if (!core->task) {
        wake = next_wake(e, cpu);
        core->clock = wake < e->until ? wake : e->until;
        return false;
    }
    core->turn_ends = core->clock + e->timing.slice * TICKS;
    e->machine.cpus[cpu].pqr_assoc = (uint64_t)core->task->clos << 32 | core->task->rmid;
    return true;
}

/* Small pages lie anywhere in memory. */
static uint64_t placed(const struct task *t, uint64_t line)
{
    uint64_t page;

    line += t->region;
    if (!t->scattered)
        return line;
    page = (line / PAGE_LINES) * 0x9e3779b97f4a7c15ull;
    page ^= page >> 29;
    page = (page * 0xbf58476d1ce4e5b9ull) >> 14;
    return page * PAGE_LINES + line % PAGE_LINES;
}

static uint64_t in_ns(const struct engine *e, uint64_t ticks)
{
    return ticks / TICKS * (1e9 / e->timing.hz);
}

static void throttle(struct engine *e, unsigned cpu, struct beside *b)
{
    uint64_t limit = stall_limit(&e->machine, cpu), ticks;
    struct core *core = &e->cores[cpu];

    if (!limit)
        return;
    ticks = pace_take(&core->pace, in_ns(e, core->clock), LINE * e->weight, limit) * (e->timing.hz / 1e9) * TICKS;
    core->clock += ticks;
    b->throttled += ticks;
}

/* Wait for what an access takes, as far as it can't be underway while others are asked for. */
static void wait(struct engine *e, unsigned cpu, unsigned domain, struct outcome outcome, unsigned overlap)
{
    struct core *core = &e->cores[cpu];
    struct beside *b = beside(e, domain, core->task->rmid);
    const uint32_t cycles[SERVERS] = { e->timing.l2_cycles, e->timing.l3_cycles, e->timing.memory_cycles };
    unsigned lines = outcome.written + (outcome.served == FROM_MEMORY);
    uint64_t comes = core->clock;

    if (lines && e->line_ticks) {
        comes = channel_move(&e->channels[domain], comes, lines * e->line_ticks);
        b->queued += comes - core->clock - lines * e->line_ticks;
    }
    core->asked++;
    core->underway[core->asked % MAX_OVERLAP] = comes + cycles[outcome.served] * e->weight * TICKS;
    comes = core->underway[(core->asked - overlap + 1) % MAX_OVERLAP];
    if (core->clock < comes)
        core->clock = comes;
    if (outcome.served == FROM_MEMORY)
        throttle(e, cpu, b);
}

/* Have a CPU make accesses of its task, until its clock is past a moment, or it is another's turn. */
static void go_on(struct engine *e, unsigned cpu, uint64_t until)
{
    struct core *core = &e->cores[cpu];
    struct task *t = core->task;
    struct stream *s = &t->streams[t->now];
    uint64_t begun = core->clock, ticks = (uint64_t)s->load.instructions * TICKS, accesses = 0;
    bool waits_for_l2 = e->timing.l2_cycles;
    struct access a = { .cpu = cpu, .domain = machine_domain_of(&e->machine, cpu), .rmid = t->rmid };

    a.l2_mask = machine_l2_mask(&e->machine, cpu, false);
    a.l3_mask = machine_l3_mask(&e->machine, cpu, false);
    if (until > core->turn_ends)
        until = core->turn_ends;
    if (until > t->ends)
        until = t->ends;
    do {
        uint64_t line = placed(t, stream_next(s, &t->chance));

        accesses++;
        if (e->places >> line % PAGE_LINES & 1) {
            struct outcome outcome;

            a.number = line;
            a.kind = s->load.stores && chance(&t->chance) >> 54 < s->load.stores ? STORE : LOAD;
            outcome = (e->traced ? trace_access : hierarchy_access)(&e->hierarchy, &a);
            if (outcome.served != FROM_L2 || waits_for_l2)
                wait(e, cpu, a.domain, outcome, s->load.overlap);
        }
        /* Behind the access: so CPUs come to the channel in the order of their clocks. */
        core->clock += ticks;
    } while (core->clock < until);
    hierarchy_executed(&e->hierarchy, cpu, t->rmid, accesses * s->load.instructions);
    beside(e, a.domain, t->rmid)->ticks += core->clock - begun;
    t->progress.accesses += accesses;
    t->progress.instructions += accesses * s->load.instructions;
    t->progress.cycles += core->clock - begun;
}

void engine_run(struct engine *e, uint64_t cycles)
{
    unsigned cpus = e->machine.ncpus;

    e->until += cycles * TICKS;
    for (unsigned i = 0; i < cpus; i++)
        e->cores[i].turn_ends = 0;
    for (;;) {
        unsigned last = 0;
        uint64_t next = e->until;
        struct core *core;

        for (unsigned i = 1; i < cpus; i++)
            if (e->cores[i].clock < e->cores[last].clock)
                last = i;
        core = &e->cores[last];
        if (core->clock >= e->until)
            break;
        for (unsigned i = 0; i < cpus; i++)
            if (i != last && e->cores[i].clock < next)
                next = e->cores[i].clock;
        if (!core->task || core->clock >= core->turn_ends || core->clock >= core->task->ends || core->task->stopped)
            if (!schedule(e, last))
                continue;
        go_on(e, last, next);
    }
    if (e->traced)
        trace_settle();
}

void engine_counted(const struct engine *e, unsigned domain, unsigned rmid, struct counted *counted)
{
    const struct hierarchy *h = &e->hierarchy;
    struct tally t = hierarchy_tally(h, domain, rmid);
    struct share s = hierarchy_share(h, domain, rmid);
    const struct beside *b = beside(e, domain, rmid);

    *counted = (struct counted){ .instructions = t.instructions,
                                 .cycles = b->ticks / TICKS,
                                 .occupancy = s.lines * LINE,
                                 .total = hierarchy_traffic(h, domain, rmid),
                                 .writebacks = s.writebacks,
                                 .queued = b->queued / TICKS,
                                 .throttled = b->throttled / TICKS };
    counted->local = counted->total; /* as for a guest: there is one memory */
    for (unsigned kind = 0; kind < KINDS; kind++) {
        counted->misses += t.served[kind][FROM_MEMORY];
        counted->references += t.served[kind][FROM_L3] + t.served[kind][FROM_MEMORY];
    }
}

void engine_progress(const struct engine *e, unsigned task, struct progress *progress)
{
    *progress = e->tasks[task]->progress;
    progress->cycles /= TICKS;
}

size_t engine_evictions(const struct engine *e, unsigned domain, struct eviction *evictions, size_t room)
{
    size_t count = 0;

    for (unsigned by = 0; by < e->hierarchy.rmids; by++)
        for (unsigned of = 0; of < e->hierarchy.rmids; of++) {
            uint64_t lines = hierarchy_evicted(&e->hierarchy, domain, by, of);

            if (lines && count++ < room)
                evictions[count - 1] = (struct eviction){ by, of, lines };
        }
    return count;
}

void engine_distances(const struct engine *e, unsigned domain, unsigned rmid, uint64_t *accesses)
{
    for (unsigned distance = 0; distance < DISTANCES; distance++)
        accesses[distance] = hierarchy_distance(&e->hierarchy, domain, rmid, distance);
}
