/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model of the caches counted since boot, as a file: at each moment that somebody wants to know, a line for
 * each domain and each RMID that has counts there, a JSON object {"t": seconds of the host's monotonic clock,
 * "why": the moment, "domain": N, "rmid": N, "load": [from L2, from L3, from memory], "store": [...], "fetch": [...],
 * "instructions": N, "writebacks": lines, "occupancy": bytes, "waited_ns": N}. Where evictions are counted, it also has
 * "evicted": {"RMID": lines of it that left the L3 for this one's, ...}, without those of which there are none.
 */
#ifndef RDT_REPORT_H
#define RDT_REPORT_H

#include <stdbool.h>

#include "hierarchy.h"

/* Returns whether the file could be made. Without it, report does nothing; if a line can't be written, QEMU ends. */
bool report_open(const char *path);
void report(const struct hierarchy *h, double seconds, const char *why);

#endif
