/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's clocks run with this one. */
#ifndef RDT_CLOCK_H
#define RDT_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SECOND_NS 1000000000ull

static inline uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND_NS + t.tv_nsec;
}

#endif
