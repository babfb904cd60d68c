/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that the registers of RDT hold: of each CPU, with its L2 cache, and of each domain (L3 cache).
 *
 * Nothing here knows of QEMU. What CPUs did and what time it is come in as numbers, so that a test can choose them.
 * Callers keep to one thread at a time.
 */
#ifndef RDT_MACHINE_H
#define RDT_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "hierarchy.h"
#include "options.h"
#include "pmu.h"

enum {
    MAX_CPUS = 64,
    MAX_RMIDS = 1024,  /* IA32_PQR_ASSOC[9:0] */
    MAX_L3_CLOS = 64,  /* half of the mask registers 0xC90..0xD0F: with CDP a class has two */
    MAX_L2_CLOS = 32,  /* half of 0xD10..0xD4F */
    MAX_MBA_CLOS = 64, /* 0xD50..0xD8F */
    MAX_ASSIGNED = 32, /* L3_QOS_ABMC_CFG[52:48] */
};

enum fault { FAULT_NONE, FAULT_UNAVAILABLE, FAULT_ERROR };

/* What is counted for an RMID in a domain, in bytes. */
struct counter {
    uint64_t total, local;
    double occupancy;
    uint64_t taken; /* of the modelled traffic: what is in total */
    uint64_t most_cycles; /* behind which its programs stand still; 0: never */
    enum fault fault;
};

/* A counter that one event of an RMID is assigned to: L3_QOS_ABMC_CFG as written, and the event's bytes by then. */
struct assigned {
    uint64_t cfg, began;
};

struct domain {
    uint64_t l3_cfg;
    uint64_t l3_mask[2 * MAX_L3_CLOS];
    uint64_t mba[MAX_MBA_CLOS];
    uint64_t smba[MAX_MBA_CLOS];
    uint64_t ext_cfg;
    uint64_t event_cfg[2];
    struct counter counters[MAX_RMIDS];
    struct assigned assigned[MAX_ASSIGNED];
    uint64_t decayed_ns;
};

struct cpu {
    unsigned domain;
    uint64_t pqr_assoc;
    uint64_t qm_evtsel;
    uint64_t marked; /* the association at the last mark, with MARKED; 0 where there was none */
    uint64_t l2_cfg;
    uint64_t l2_mask[2 * MAX_L2_CLOS];
    struct pmu pmu;
    uint64_t charged; /* of its work: what was charged to an RMID */
};

struct machine {
    struct options options;
    unsigned ncpus;
    bool modelled;  /* counters say what a model of the caches counts */
    uint32_t turns; /* how often that changed, or the caches were emptied */
    struct cpu cpus[MAX_CPUS];
    struct domain domains[MAX_CPUS];
};

/* The state after a reset. */
void machine_reset(struct machine *m, const struct options *o, unsigned ncpus, uint64_t now_ns);

unsigned machine_domain_of(const struct machine *m, unsigned cpu);

/* Its caches, for the model of them. */
struct geometry machine_geometry(const struct options *o);

/*
 * The ways that a CPU's class may fill with code or else with data, all of them where they can't be allocated. With
 * CDP, bit 0 of the configuration, a class has two masks, of data and then of code (SDM 17.19.3).
 */
uint64_t machine_l3_mask(const struct machine *m, unsigned cpu, bool code);
uint64_t machine_l2_mask(const struct machine *m, unsigned cpu, bool code);

/* IA32_PQR_ASSOC: RMID in bits 9:0, CLOS in bits 63:32 (SDM 17.18.6, 17.19.4.4; APM 19, PQR_ASSOC). */
unsigned machine_rmid(const struct cpu *c);
unsigned machine_clos(const struct cpu *c);

#endif
