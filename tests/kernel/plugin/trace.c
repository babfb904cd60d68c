/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>

static FILE *file;
static unsigned left; /* records that are still to come */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct record {
    uint64_t number, l2_mask, l3_mask;
    uint32_t rmid;
    uint8_t cpu, domain, kind, served;
};
_Static_assert(sizeof(struct record) == TRACE_RECORD, "a record is without gaps");

bool trace_open(const char *path)
{
    if (file)
        fclose(file);
    file = fopen(path, "wb");
    left = file ? TRACE_LIMIT : 0;
    return file;
}

static bool recording(void)
{
    return __atomic_load_n(&left, __ATOMIC_RELAXED);
}

/* The lock must be held. */
static void record(const struct access *a, unsigned kind, unsigned served)
{
    struct record r = { a->number, a->l2_mask, a->l3_mask, a->rmid, a->cpu, a->domain, kind, served };

    if (!left)
        return;
    if (fwrite(&r, sizeof r, 1, file) != 1) {
        perror("rdt plugin: the trace");
        exit(1);
    }
    __atomic_store_n(&left, left - 1, __ATOMIC_RELAXED);
}

struct outcome trace_access(struct hierarchy *h, const struct access *a)
{
    struct outcome outcome;

    if (!recording())
        return hierarchy_access(h, a);
    pthread_mutex_lock(&lock);
    outcome = hierarchy_access(h, a);
    record(a, a->kind, outcome.served);
    pthread_mutex_unlock(&lock);
    return outcome;
}

void trace_flush(struct hierarchy *h, unsigned cpu, unsigned domain)
{
    struct access a = { .cpu = cpu, .domain = domain };

    pthread_mutex_lock(&lock);
    hierarchy_flush(h, cpu, domain);
    record(&a, TRACE_FLUSH, FROM_L2);
    pthread_mutex_unlock(&lock);
}

void trace_settle(void)
{
    if (file && fflush(file)) {
        perror("rdt plugin: the trace");
        exit(1);
    }
}
