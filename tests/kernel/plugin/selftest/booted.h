/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that tests work on. */
#ifndef RDT_BOOTED_H
#define RDT_BOOTED_H

#include "../machine.h"

extern struct machine m;

/* A machine of two sockets with two CPUs each, with comma-separated arguments of the plugin. */
void boot(const char *arguments);

/* What a kernel does when a CPU goes on with another task. */
void associate(unsigned cpu, unsigned rmid, unsigned clos);

#endif
