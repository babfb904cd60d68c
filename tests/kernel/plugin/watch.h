/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the guest's CPUs access, brought to the model of the caches: loads and stores when they happen, fetches when
 * code is entered. Without modelling nothing is watched, and the guest's code is as fast as without this.
 *
 * QEMU tells the physical address of a load or store, as translated for the guest or for a VM in it. Of code it tells
 * where in its own memory the guest's is, which stands for the physical address; so a line that is both executed and
 * read as data is two lines here. Not seen: what the MMU reads of page tables, what devices read and write, the second
 * line of an access that lies on two.
 */
#ifndef RDT_WATCH_H
#define RDT_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "control.h"
#include "hierarchy.h"
#include "machine.h"
#include "qemu.h"

/* For this machine, from then on. Returns whether there was memory. */
bool watch_begin(struct machine *m);

/* All CPUs must stand still, with their work charged. Code that was translated before is the caller's business. */
void watch_turn(enum turn turn);

/* Instrument a block of the guest's code. To be called for each that is translated while the machine is modelled. */
void watch_block(struct qemu_plugin_tb *block, enum ring ring);

/* What accesses of a CPU in a ring came to since boot; instructions are left alone. Only for its own thread. */
void watch_served(unsigned cpu, enum ring ring, struct done *done);

/* A CPU executed more instructions under its RMID. */
void watch_executed(unsigned cpu, uint64_t instructions);

/* A CPU empties its caches. */
void watch_flush(unsigned cpu);

/* Have the counter that a CPU is about to read say what was counted. */
void watch_take(unsigned domain, unsigned rmid);

/* What was counted so far. */
struct hierarchy *watch_counts(void);

#endif
