/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the monitoring counters say. They are made up, but follow what the guest does: what a CPU executed is charged,
 * as bytes, to the RMID that was in its IA32_PQR_ASSOC meanwhile.
 *
 *   traffic    instructions, times bytes=, less what the class is throttled by (Intel's MBA); localpct= of it is local.
 *   occupancy  grows with the traffic, up to the share of the L3 that the class's mask is; of what a mask that was
 *              narrowed no longer covers, as much goes as traffic comes; an RMID under which nobody runs loses half
 *              each halflife=; the sum never exceeds the cache.
 *
 * While a model of the caches counts, none of this is made up: traffic grows by what the model counted meanwhile, all
 * of it local, for the guests have one memory; occupancy is the model's.
 */
#ifndef RDT_COUNTERS_H
#define RDT_COUNTERS_H

#include <stdint.h>

#include "machine.h"

/* IA32_QM_EVTSEL[7:0]: the event IDs (SDM 17.18.7). */
enum { EVENT_OCCUPANCY = 1, EVENT_TOTAL = 2, EVENT_LOCAL = 3 };

/*
 * On AMD, bit 31 of IA32_QM_EVTSEL with event 1 selects an assigned counter, whose number stands in place of the RMID
 * (APM 2, 19: Assignable Bandwidth Monitoring Counters; __cntr_id_read in Linux).
 */
enum { EVENT_ASSIGNED = 1 };
#define EVTSEL_EXTENDED (1ull << 31)

/*
 * L3_QOS_ABMC_CFG (union l3_qos_abmc_cfg in Linux): kinds of traffic in bits 31:0, as in L3_QOS_EVT_CFG; the RMID in
 * 43:32; the counter in 52:48; whether it counts in 62; a write without bit 63 changes nothing.
 */
#define ABMC_COUNTS (1ull << 62)
#define ABMC_APPLY (1ull << 63)

/* IA32_QM_CTR (SDM 17.18.7): bits over the data. */
#define QM_CTR_ERROR (1ull << 63)
#define QM_CTR_UNAVAILABLE (1ull << 62)

/* Charge what a CPU did: work is how many instructions it executed so far. Call it before its RMID or class changes. */
void counters_charge(struct machine *m, unsigned cpu, uint64_t work);

/* Have occupancy fade in a domain; all its CPUs must have been charged. */
void counters_settle(struct machine *m, unsigned domain, uint64_t now_ns);

/* Take over what a model counted in all, in bytes. Call it before a counter is read, and when modelling ends. */
void counters_take(struct machine *m, unsigned domain, unsigned rmid, uint64_t traffic, uint64_t occupancy);

/* WRMSR to L3_QOS_ABMC_CFG: the counter begins at 0. */
void counters_assign(struct machine *m, unsigned domain, uint64_t cfg);

/* IA32_QM_CTR of a domain for what IA32_QM_EVTSEL selects. */
uint64_t counters_read(const struct machine *m, unsigned domain, uint64_t evtsel);

/* Bytes of the L3 that a class may fill. */
double counters_share(const struct machine *m, unsigned domain, unsigned clos);

#endif
