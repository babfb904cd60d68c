/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: a line for each write of a register, a JSON object {"t": seconds of the host's monotonic clock, "cpu": N,
 * "reg": "0x...", "val": "0x..."}. It is written before the instruction has its effect in the guest. IA32_PQR_ASSOC and
 * IA32_QM_EVTSEL are left out: one is written at each context switch, the other one for each reading of a counter.
 */
#ifndef RDT_LOG_H
#define RDT_LOG_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether the file could be made. Without it, log_line does nothing; if a line can't be written, QEMU ends. */
bool log_open(const char *path);
void log_line(double seconds, unsigned cpu, uint32_t reg, uint64_t value);

#endif
