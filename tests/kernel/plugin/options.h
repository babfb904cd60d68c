/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What CPU the guest sees: the plugin's arguments, name=value, comma-separated after the file's name:
 *
 *     -plugin file=rdt.so,sockets=2,l3ways=20,log=/tmp/msr.jsonl
 *
 * Numbers may be hexadecimal (0x600). "help=on" prints all of them, with default and range (options.c).
 */
#ifndef RDT_OPTIONS_H
#define RDT_OPTIONS_H

#include <stddef.h>
#include <stdbool.h>

struct options {
    long sockets;
    long cmt, mbmt, mbml, rmids, upscale, mbmoff;
    long l3, l3ways, l3shared, l3clos, l3cdp, l3noncont, l3size;
    long l2, l2ways, l2shared, l2clos, l2cdp, l2noncont;
    long mba, mbaclos, mbamax, mbalen;
    long amd, bmec, smba, sdciae, abmc, topoext;
    long bytes, localpct, halflife;
    long pmu;
    long cache, sample, l2size, l3_ns, memory_ns, bandwidth, mba_unit, evictions, curves, channel;
    const char *log, *counts, *trace;
};

/* What holds without arguments: two sockets of a Cascade Lake. */
void options_default(struct options *o);

/*
 * Take the arguments over what is in o. Returns whether they are good; if not, error says which one is not, and what it
 * may be.
 */
bool options_parse(struct options *o, int argc, char **argv, char *error, size_t size);

/* One of the numbers by its name. A value out of its range changes nothing. */
long options_get(const struct options *o, const char *name);
void options_set(struct options *o, const char *name, long value);

/* Whether they fit each other and this many vCPUs; error as above. */
bool options_check(const struct options *o, int vcpus, char *error, size_t size);

/* All arguments with their meaning, to standard error. */
void options_help(void);

#endif
