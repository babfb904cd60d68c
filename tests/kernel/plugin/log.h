/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: a JSON object a line, {"t": seconds of the host's monotonic clock, "cpu": N, "op": WHAT, "reg": "0x...",
 * "val": "0x..."}. WHAT is wrmsr; with logall=1 also qm_ctr (reg: IA32_QM_EVTSEL) and cpuid (reg: leaf << 32 | subleaf,
 * val: EBX). A line is written before the instruction has its effect in the guest.
 */
#ifndef RDT_LOG_H
#define RDT_LOG_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether the file could be made; without it, log_line does nothing. */
bool log_open(const char *path);
void log_line(double seconds, unsigned cpu, const char *what, uint64_t reg, uint64_t value);

#endif
