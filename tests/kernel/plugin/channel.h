/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel between an L3 and memory, which all CPUs of the L3 share. It moves one line at a time, each in the same
 * time, in the order in which they come. So whoever comes while it is busy waits until those before are through.
 *
 * Times are in any unit, all in the same. Nothing here knows of QEMU, or locks.
 */
#ifndef RDT_CHANNEL_H
#define RDT_CHANNEL_H

#include <stdint.h>

struct channel {
    uint64_t free; /* when it has moved all that came so far */
};

/* Have the channel move what takes it some time by itself. Returns when it is through. Calls come in order of now. */
uint64_t channel_move(struct channel *c, uint64_t now, uint64_t time);

#endif
