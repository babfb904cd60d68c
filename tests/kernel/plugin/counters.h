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

/* IA32_QM_CTR (SDM 17.18.7): bits over the data. */
#define QM_CTR_ERROR (1ull << 63)
#define QM_CTR_UNAVAILABLE (1ull << 62)

/* Charge what a CPU did: work is how many instructions it executed so far. Call it before its RMID or class changes. */
void counters_charge(struct machine *m, unsigned cpu, uint64_t work);

/* Have occupancy fade in a domain; all its CPUs must have been charged. */
void counters_settle(struct machine *m, unsigned domain, uint64_t now_ns);

/* Take over what a model counted in all, in bytes. Call it before a counter is read, and when modelling ends. */
void counters_take(struct machine *m, unsigned domain, unsigned rmid, uint64_t traffic, uint64_t occupancy);

/* IA32_QM_CTR of a domain for what IA32_QM_EVTSEL selects. */
uint64_t counters_read(const struct machine *m, unsigned domain, uint64_t evtsel);

/* Bytes of the L3 that a class may fill. */
double counters_share(const struct machine *m, unsigned domain, unsigned clos);

#endif
