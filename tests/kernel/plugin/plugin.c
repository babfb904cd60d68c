/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin for QEMU's software emulation (TCG) that gives an x86_64 guest's CPUs Intel RDT or AMD's Platform QoS, as
 * far as a kernel can see: CPUID leaves and model-specific registers. It keeps values that a register of a CPU would
 * refuse with a general-protection fault.
 *
 * Followed are Intel's Software Developer's Manual, volume 3B, the sections "Intel RDT Monitoring Features" (17.18) and
 * "Intel RDT Allocation Features" (17.19; the chapter is 18 in editions from 2023 on), and AMD's Architecture
 * Programmer's Manual, volume 2, chapter 19, "Platform Quality of Service".
 *
 * How: QEMU's own emulation of CPUID, RDMSR and WRMSR knows none of this; it answers zeros and ignores writes. So a
 * callback in front of each of these instructions sees what is asked, and another one in front of whatever instruction
 * comes next on that vCPU, while the registers still are as the instruction left them, puts in the answer. Where a VM
 * in the guest executed the instruction, the next one is its KVM's, which overwrites the answer with its own.
 *
 * Of RDPMC QEMU knows no more than that it is an invalid instruction. So the callback in front of it has the CPU go on
 * behind it.
 *
 *   qemu.h      QEMU's interface              machine.*   the registers' state
 *   options.*   the arguments                 cpuid.*     the CPUID leaves
 *   decode.*    which instruction is it       msr.*       the registers
 *   log.*       the log                       counters.*  what the counters say
 *   plugin.c    the callbacks                 control.*   what a test can have the plugin do
 *                                             pmu.*       the performance counters
 *
 * The caches can be modelled, so that what the kernel writes has an effect that can be counted and felt:
 *
 *   cache.*     one cache with its ways       watch.*     what the CPUs access
 *   hierarchy.* L2s, L3s and what they count  stall.*     having CPUs stand still
 *   window.*    reading the counts in a guest report.*    the counts as a file
 *   trace.*     the accesses as a file        clock.h     what time it is
 *   evictions.* who evicted whom              distances.* what would be missed with fewer ways
 *   channel.*   the channel to memory
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "control.h"
#include "counters.h"
#include "cpuid.h"
#include "decode.h"
#include "log.h"
#include "machine.h"
#include "msr.h"
#include "options.h"
#include "pmu.h"
#include "qemu.h"
#include "report.h"
#include "trace.h"
#include "watch.h"
#include "window.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

/* What the two callbacks of one instruction share, and where a vCPU's registers are. */
struct vcpu {
    struct qemu_plugin_register *rax, *rbx, *rcx, *rdx, *cs;
    GByteArray *buffer;
    enum instruction instruction;
    uint32_t eax, ecx;
    bool in_vm; /* it executes a VM of the guest's; known only where there are performance counters */
};

enum { MAX_VMRUNS = 16 }; /* KVM has two */

/* Numbers that translated code reads and changes by itself, without a callback. */
struct score {
    uint64_t pending; /* an answer is due before the next instruction */
    uint64_t work;    /* instructions executed */
    uint64_t of_user; /* those of them that are not the kernel's */
};

static qemu_plugin_id_t plugin;
static struct options options;
static struct machine machine;
static struct vcpu vcpus[MAX_CPUS];
static qemu_plugin_u64 pending, work, of_user;
static enum turn next_turn;
static uint64_t behind_vmrun[MAX_VMRUNS]; /* addresses */
static unsigned vmruns;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of machine and log: vCPUs run in threads */

/* Of a QEMU that does not keep to its interface. */
static void die(const char *what)
{
    fprintf(stderr, "rdt plugin: %s\n", what);
    exit(1);
}

static uint64_t get(struct vcpu *v, struct qemu_plugin_register *reg)
{
    uint64_t value = 0;

    g_byte_array_set_size(v->buffer, 0);
    if (!qemu_plugin_read_register(reg, v->buffer))
        die("QEMU does not let a register be read");
    memcpy(&value, v->buffer->data, v->buffer->len < sizeof value ? v->buffer->len : sizeof value);
    return value;
}

static void put(struct vcpu *v, struct qemu_plugin_register *reg, uint64_t value)
{
    g_byte_array_set_size(v->buffer, sizeof value);
    memcpy(v->buffer->data, &value, sizeof value);
    if (!qemu_plugin_write_register(reg, v->buffer))
        die("QEMU does not let a register be written");
}

static void charge(unsigned cpu)
{
    uint64_t done = qemu_plugin_u64_get(work, cpu);

    watch_executed(cpu, done - machine.cpus[cpu].charged);
    counters_charge(&machine, cpu, done);
}

static void charge_domain(unsigned domain)
{
    for (unsigned i = 0; i < machine.ncpus; i++)
        if (machine_domain_of(&machine, i) == domain)
            charge(i);
    counters_settle(&machine, domain, now_ns());
}

static void charge_all(void)
{
    for (unsigned i = 0; i < machine.options.sockets; i++)
        charge_domain(i);
}

static void settle_pmu(unsigned cpu)
{
    struct done done[RINGS];

    done[USER].instructions = qemu_plugin_u64_get(of_user, cpu);
    done[KERNEL].instructions = qemu_plugin_u64_get(work, cpu) - done[USER].instructions;
    for (unsigned ring = 0; ring < RINGS; ring++)
        watch_served(cpu, ring, &done[ring]);
    pmu_settle(&machine.cpus[cpu].pmu, &options, done);
}

static uint64_t read_msr(unsigned cpu, uint32_t msr)
{
    unsigned domain = machine_domain_of(&machine, cpu);
    bool window = window_ours(&options, msr);
    uint64_t value;

    pthread_mutex_lock(&lock);
    if (msr == IA32_QM_CTR || window)
        charge_domain(domain);
    if (pmu_ours(&options, msr))
        settle_pmu(cpu);
    if (msr == IA32_QM_CTR && machine.modelled)
        watch_take(domain, machine.cpus[cpu].qm_evtsel >> 32 & (MAX_RMIDS - 1));
    value = window ? window_read(watch_counts(), domain, msr) : msr_read(&machine, cpu, msr);
    pthread_mutex_unlock(&lock);
    return value;
}

static void translate(struct qemu_plugin_tb *block, void *unused);

static void ended(void *unused)
{
    (void)unused;
    report(watch_counts(), now_ns() / 1e9, "end");
}

static void register_callbacks(void)
{
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translate, NULL);
    qemu_plugin_register_atexit_cb(plugin, ended, NULL);
}

/*
 * All vCPUs stand still, and a reset has taken away all callbacks and all translated code: only so are memory accesses
 * watched, or no longer, in code that was translated before.
 */
static void turn(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    charge_all();
    watch_turn(next_turn);
    pthread_mutex_unlock(&lock);
    register_callbacks();
}

static void write_msr(unsigned cpu, uint32_t msr, uint64_t value)
{
    pthread_mutex_lock(&lock);
    if (msr == IA32_PQR_ASSOC)
        charge(cpu);
    else if (pmu_ours(&options, msr))
        settle_pmu(cpu);
    else if (control_ours(msr))
        /* What was done so far is not to come on top of what a test sets. */
        charge_domain(machine_domain_of(&machine, cpu));
    if (msr == CONTROL_CACHE && value == TURN_REPORT) {
        charge_all();
        watch_turn(TURN_REPORT);
    } else if (msr == CONTROL_CACHE && value < TURN_REPORT) {
        next_turn = value;
        qemu_plugin_reset(plugin, turn, NULL);
    }
    msr_write(&machine, cpu, msr, value);
    if (msr != IA32_PQR_ASSOC && msr != IA32_QM_EVTSEL && !pmu_ours(&options, msr) && !control_of_cycles(&options, msr))
        log_line(now_ns() / 1e9, cpu, msr, value);
    pthread_mutex_unlock(&lock);
}

/* In front of CPUID, RDMSR, WRMSR or WBINVD. */
static void before(unsigned cpu, void *instruction)
{
    struct vcpu *v = &vcpus[cpu];
    uint32_t eax = get(v, v->rax), ecx = get(v, v->rcx);

    v->instruction = (uintptr_t)instruction;
    if (v->instruction == WBINVD) {
        if (machine.modelled && !(get(v, v->cs) & 3))
            watch_flush(cpu);
        return;
    }
    if (v->instruction == CPUID) {
        if (!cpuid_ours(&options, eax, ecx))
            return;
    } else if (!msr_ours(&options, ecx) || (get(v, v->cs) & 3) || (v->in_vm && pmu_ours(&options, ecx))) {
        /* Outside ring 0 the instruction will fault (SDM volume 2, RDMSR and WRMSR). A VM's counters are its KVM's. */
        return;
    }
    if (v->instruction == WRMSR) {
        write_msr(cpu, ecx, eax | get(v, v->rdx) << 32);
        return;
    }
    v->eax = eax;
    v->ecx = ecx;
    qemu_plugin_u64_set(pending, cpu, 1);
}

/* In front of the instruction that comes after CPUID or RDMSR. */
static void after(unsigned cpu, void *unused)
{
    struct vcpu *v = &vcpus[cpu];

    (void)unused;
    qemu_plugin_u64_set(pending, cpu, 0);
    if (v->instruction == RDMSR) {
        uint64_t value = read_msr(cpu, v->ecx);

        put(v, v->rax, (uint32_t)value);
        put(v, v->rdx, value >> 32);
    } else {
        struct cpuid r = { get(v, v->rax), get(v, v->rbx), get(v, v->rcx), get(v, v->rdx) };

        r = cpuid_answer(&options, v->eax, v->ecx, r);
        put(v, v->rax, r.eax);
        put(v, v->rbx, r.ebx);
        put(v, v->rcx, r.ecx);
        put(v, v->rdx, r.edx);
    }
}

/*
 * In front of RDPMC. A program may read a counter, too, if the kernel lets it; here that stays an invalid instruction,
 * because a program's code may lie at several addresses.
 */
static void read_counter(unsigned cpu, void *next)
{
    struct vcpu *v = &vcpus[cpu];
    uint64_t value;

    if (v->in_vm || (get(v, v->cs) & 3))
        return;
    settle_pmu(cpu);
    if (!pmu_counter(&machine.cpus[cpu].pmu, &options, get(v, v->rcx), &value))
        return;
    put(v, v->rax, (uint32_t)value);
    put(v, v->rdx, value >> 32);
    qemu_plugin_set_pc((uintptr_t)next);
}

static void enter_vm(unsigned cpu, void *unused)
{
    (void)unused;
    vcpus[cpu].in_vm = true;
}

static void leave_vm(unsigned cpu, void *unused)
{
    (void)unused;
    vcpus[cpu].in_vm = false;
}

/* What counting needs of an instruction. */
static void translate_for_pmu(struct qemu_plugin_insn *insn, enum instruction now)
{
    uint64_t next = qemu_plugin_insn_vaddr(insn) + qemu_plugin_insn_size(insn);

    if (now == RDPMC)
        qemu_plugin_register_vcpu_insn_exec_cb(insn, read_counter, QEMU_PLUGIN_CB_RW_REGS, (void *)(uintptr_t)next);
    if (now == VMRUN) {
        qemu_plugin_register_vcpu_insn_exec_cb(insn, enter_vm, QEMU_PLUGIN_CB_NO_REGS, NULL);
        pthread_mutex_lock(&lock);
        behind_vmrun[vmruns++ % MAX_VMRUNS] = next;
        pthread_mutex_unlock(&lock);
    }
}

/* A VM has been left when what is behind VMRUN is executed: the beginning of a block that is translated after VMRUN. */
static bool is_behind_vmrun(uint64_t address)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < MAX_VMRUNS; i++)
        found |= vmruns && behind_vmrun[i] == address;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Instruments a block of guest code when it is translated. */
static void translate(struct qemu_plugin_tb *block, void *unused)
{
    size_t count = qemu_plugin_tb_n_insns(block);
    enum instruction previous = OTHER;
    /* Linux is in the upper half of the address space. */
    enum ring ring = qemu_plugin_tb_vaddr(block) >> 63 ? KERNEL : USER;

    (void)unused;
    /* The instruction that asked may have been the last one of another block. */
    qemu_plugin_register_vcpu_tb_exec_cond_cb(block, after, QEMU_PLUGIN_CB_RW_REGS, QEMU_PLUGIN_COND_NE, pending, 0,
                                              NULL);
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, QEMU_PLUGIN_INLINE_ADD_U64, work, count);
    if (options.pmu && ring == USER)
        qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, QEMU_PLUGIN_INLINE_ADD_U64, of_user, count);
    if (options.pmu && is_behind_vmrun(qemu_plugin_tb_vaddr(block)))
        qemu_plugin_register_vcpu_tb_exec_cb(block, leave_vm, QEMU_PLUGIN_CB_NO_REGS, NULL);
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
        uint8_t bytes[16];
        enum instruction now = decode(bytes, qemu_plugin_insn_data(insn, bytes, sizeof bytes));

        if (previous == CPUID || previous == RDMSR)
            qemu_plugin_register_vcpu_insn_exec_cond_cb(insn, after, QEMU_PLUGIN_CB_RW_REGS, QEMU_PLUGIN_COND_NE,
                                                        pending, 0, NULL);
        if (options.pmu)
            translate_for_pmu(insn, now);
        if (now == CPUID || now == RDMSR || now == WRMSR || now == WBINVD)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, before, QEMU_PLUGIN_CB_R_REGS, (void *)(uintptr_t)now);
        previous = now;
    }
    if (machine.modelled)
        watch_block(block, ring);
}

/* Finds the registers of a vCPU, by the names that QEMU's gdb stub gives them. */
static void vcpu_init(unsigned cpu, void *unused)
{
    struct vcpu *v = &vcpus[cpu];
    struct {
        const char *name;
        struct qemu_plugin_register **handle;
    } wanted[] = { { "rax", &v->rax }, { "rbx", &v->rbx }, { "rcx", &v->rcx }, { "rdx", &v->rdx }, { "cs", &v->cs } };
    const size_t count = sizeof wanted / sizeof wanted[0];
    GArray *registers = qemu_plugin_get_registers();
    size_t found = 0;

    (void)unused;
    v->buffer = g_byte_array_new();
    for (unsigned i = 0; i < registers->len; i++) {
        const qemu_plugin_reg_descriptor *listed =
            (const void *)(registers->data + (size_t)i * g_array_get_element_size(registers));

        for (size_t k = 0; k < count; k++)
            if (!strcmp(listed->name, wanted[k].name)) {
                *wanted[k].handle = listed->handle; /* which may well be a null pointer */
                found++;
            }
    }
    if (found != count)
        die("QEMU does not list all of the registers rax, rbx, rcx, rdx and cs");
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "help=on"))
            return true;
    return false;
}

/* Open a file that an argument may name. */
static bool opened(const char *argument, const char *path, bool (*open)(const char *path))
{
    if (!path || open(path))
        return true;
    fprintf(stderr, "rdt plugin: %s=%s: ", argument, path);
    perror("");
    return false;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    struct qemu_plugin_scoreboard *scores;
    char error[256];

    if (strcmp(info->target_name, "x86_64") || !info->system_emulation) {
        fprintf(stderr, "rdt plugin: only for qemu-system-x86_64\n");
        return -1;
    }
    if (asks_for_help(argc, argv)) {
        options_help();
        return -1;
    }
    options_default(&options);
    if (!options_parse(&options, argc, argv, error, sizeof error) ||
        !options_check(&options, info->system.max_vcpus, error, sizeof error)) {
        fprintf(stderr, "rdt plugin: %s\n", error);
        return -1;
    }
    if (!opened("log", options.log, log_open) || !opened("counts", options.counts, report_open) ||
        !opened("trace", options.trace, trace_open))
        return -1;
    plugin = id;
    machine_reset(&machine, &options, info->system.max_vcpus, now_ns());
    if (!watch_begin(&machine))
        die("no memory for counting");
    if (options.cache)
        watch_turn(TURN_ON);
    scores = qemu_plugin_scoreboard_new(sizeof(struct score));
    pending = (qemu_plugin_u64){ scores, offsetof(struct score, pending) };
    work = (qemu_plugin_u64){ scores, offsetof(struct score, work) };
    of_user = (qemu_plugin_u64){ scores, offsetof(struct score, of_user) };
    qemu_plugin_register_vcpu_init_cb(id, vcpu_init, NULL);
    register_callbacks();
    return 0;
}
