/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel between an L3 and memory, which all CPUs of the L3 share. It moves one line at a time, each in the same
 * time, in the order in which they come. So whoever comes while it is busy waits until those before are through.
 *
 * Nothing here knows of QEMU.
 */
#ifndef RDT_CHANNEL_H
#define RDT_CHANNEL_H

#include <stdint.h>

/*
 * The channel to the letter: for CPUs whose accesses come in the order of their time. Times are in any unit. Calls come
 * one at a time.
 */
struct channel {
    uint64_t free; /* when it has moved all that came so far */
};

/* Have the channel move what takes it some time by itself. Returns when it is through. */
uint64_t channel_move(struct channel *c, uint64_t now, uint64_t time);

/*
 * The channel in the mean: for CPUs that run ahead and then stand still, as those in QEMU do (stall.h). Their accesses
 * come in bursts and in no order, so where the one before is now says nothing.
 *
 * What is known is for which share of its time each CPU is at the channel. A CPU has one access there at a time. So, on
 * average, one that comes finds as many others before it as their shares add up to, and waits for these: its own time
 * becomes 1 + that sum times as long. (It is the arrival theorem for queueing networks in which each customer comes once
 * at a time, with Bard's approximation: Lazowska and others, Quantitative System Performance, 1984, chapter 7.)
 *
 * The channel is never used for more than all of its time. A CPU with share q uses it for q / (1 + the others' shares),
 * and since no share is above 1, that is at most q / (the sum of all).
 *
 * Shares are those of the last CHANNEL_WINDOW_NS.
 */
#define CHANNEL_WINDOW_NS 10000000ull

/* A CPU at the channel. Its own thread writes, those of other CPUs read. */
struct visitor {
    uint64_t window;            /* which one it was here in last */
    uint64_t here_ns, last_ns;  /* for how long, in that window and in the one before it */
} __attribute__((aligned(64)));

/* What takes the channel some time takes this CPU so long, of these that share the channel. */
uint64_t channel_visit(struct visitor *visitors, unsigned count, unsigned who, uint64_t now_ns, uint64_t ns);

#endif
