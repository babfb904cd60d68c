/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of the accesses that the model of the caches was given and of where it served them from, in the order in which
 * it was given them: records of TRACE_RECORD bytes, the first TRACE_LIMIT of a boot. While there are more to come, CPUs
 * wait for each other.
 *
 * A record is, little-endian: the line's number, the masks of the L2 and the L3 (8 bytes each), the RMID (4), CPU,
 * domain, enum kind, enum served (1 each). A flush of a CPU's caches has the kind TRACE_FLUSH.
 */
#ifndef RDT_TRACE_H
#define RDT_TRACE_H

#include <stdbool.h>

#include "hierarchy.h"

enum { TRACE_RECORD = 32, TRACE_LIMIT = 1 << 19, TRACE_FLUSH = KINDS };

/* Returns whether the file could be made. Without it, accesses are made and not written. */
bool trace_open(const char *path);

/* hierarchy_access and hierarchy_flush, on the record. */
struct outcome trace_access(struct hierarchy *h, const struct access *a);
void trace_flush(struct hierarchy *h, unsigned cpu, unsigned domain);

/* Have what was recorded on the disk. */
void trace_settle(void);

#endif
