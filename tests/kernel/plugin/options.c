/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "machine.h"

struct option {
    const char *name;
    size_t offset;
    long standard, least, most;
    const char *meaning;
};

#define OPTION(name, standard, least, most, meaning) \
    { #name, offsetof(struct options, name), standard, least, most, meaning }

static const struct option table[] = {
    OPTION(sockets, 2, 1, MAX_CPUS, "L3 caches; the vCPUs are dealt out evenly, in order; each has an L2 of its own"),

    OPTION(cmt, 1, 0, 1, "whether the L3's occupancy is counted"),
    OPTION(mbmt, 1, 0, 1, "whether total memory traffic is counted"),
    OPTION(mbml, 1, 0, 1, "whether local memory traffic is counted"),
    OPTION(rmids, 32, 1, MAX_RMIDS, "RMIDs"),
    OPTION(upscale, 65536, 1, 1 << 30, "bytes of one unit of the counters (CPUID.0xF.1:EBX)"),
    OPTION(mbmoff, 0, 0, 38, "bits of the traffic counters over 24 (CPUID.0xF.1:EAX[7:0])"),

    OPTION(l3, 1, 0, 1, "whether the L3's ways can be allocated"),
    OPTION(l3ways, 11, 1, 32, "bits of an L3 mask"),
    OPTION(l3shared, 0x600, 0, 0xffffffff, "L3 ways that devices fill too, as a mask"),
    OPTION(l3clos, 16, 1, MAX_L3_CLOS, "classes of the L3"),
    OPTION(l3cdp, 1, 0, 1, "whether the L3 knows code and data apart"),
    OPTION(l3noncont, 0, 0, 1, "whether L3 masks may have gaps (Intel; AMD's always may)"),
    OPTION(l3size, 16l << 20, 4096, 1l << 40, "bytes of an L3: what the guest's cache leaves say"),

    OPTION(l2, 0, 0, 1, "whether the L2's ways can be allocated"),
    OPTION(l2ways, 16, 1, 32, "bits of an L2 mask"),
    OPTION(l2shared, 0, 0, 0xffffffff, "L2 ways that devices fill too, as a mask"),
    OPTION(l2clos, 8, 1, MAX_L2_CLOS, "classes of the L2"),
    OPTION(l2cdp, 0, 0, 1, "whether the L2 knows code and data apart"),
    OPTION(l2noncont, 0, 0, 1, "whether L2 masks may have gaps"),

    OPTION(mba, 1, 0, 1, "whether memory bandwidth can be allocated"),
    OPTION(mbaclos, 8, 1, MAX_MBA_CLOS, "classes of memory bandwidth"),
    OPTION(mbamax, 90, 1, 100, "Intel: the greatest throttling value, per cent"),
    OPTION(mbalen, 11, 1, 30, "AMD: bits of a bandwidth; one more bit means unlimited"),

    OPTION(amd, 0, 0, 1, "memory bandwidth the way of AMD; for -cpu EPYC..."),
    OPTION(bmec, 0, 0, 1, "AMD: whether the traffic counters' events can be chosen"),
    OPTION(smba, 0, 0, 1, "AMD: whether the bandwidth of slow memory can be allocated; as many classes as of the other"),
    OPTION(sdciae, 0, 0, 1, "AMD: whether devices can be confined to the ways of the highest class"),
    OPTION(abmc, 0, 0, MAX_ASSIGNED, "AMD: counters of a domain that traffic events are assigned to; 0: it has none such"),
    OPTION(topoext, 0, 0, 1, "AMD: whether the CPUs of a socket share its L3, of which they say l3size= and l3ways="),

    OPTION(bytes, 8, 0, 1 << 20, "bytes of traffic for each instruction executed"),
    OPTION(localpct, 75, 0, 100, "per cent of the traffic that is local"),
    OPTION(halflife, 2000, 1, 1l << 31, "ms in which an RMID that nobody runs under loses half its occupancy"),

    OPTION(pmu, 0, 0, 1, "whether there are performance counters (pmu.h)"),

    OPTION(cache, 0, 0, 1, "whether the caches are modelled from boot on; else once a register says so"),
    OPTION(sample, 3, 0, MAX_SAMPLE, "model 1 of 2^n sets, and multiply what is counted"),
    OPTION(l2size, 1l << 20, 0, 1l << 30, "bytes of the modelled L2s; at least a page a way"),
    OPTION(l3_ns, 0, 0, 1000000, "ns that a CPU stands still for a line from the modelled L3"),
    OPTION(memory_ns, 0, 0, 1000000, "ns that a CPU stands still for a line from memory"),
    OPTION(bandwidth, 100000000, 1000000, 1l << 40, "Intel: bytes a second from memory that 100 % are, for each CPU"),
    OPTION(mba_unit, 125000000, 1000000, 1l << 30, "AMD: bytes a second from memory that one unit of bandwidth is"),
    OPTION(evictions, 0, 0, 1, "count whose lines left the modelled L3 for whose: 8 * rmids^2 bytes for each L3"),
    OPTION(curves, 0, 0, MAX_RMIDS, "RMIDs in each L3 of which to count what they would miss with each number of ways"),
    OPTION(channel, 0, 0, 1l << 40, "bytes a second between an L3 and memory, which its CPUs share; 0: any number"),
};
#define OPTIONS (sizeof table / sizeof table[0])

static const struct path {
    const char *name;
    size_t offset;
    const char *meaning;
} paths[] = {
    { "log", offsetof(struct options, log), "a JSON line for each write of a register, with exceptions (log.h)" },
    { "counts", offsetof(struct options, counts), "JSON lines with what the model of the caches counted (report.h)" },
    { "trace", offsetof(struct options, trace), "what the model of the caches was given (trace.h)" },
};
#define PATHS (sizeof paths / sizeof paths[0])

static long *field(struct options *o, const struct option *option)
{
    return (long *)((char *)o + option->offset);
}

void options_default(struct options *o)
{
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < OPTIONS; i++)
        *field(o, &table[i]) = table[i].standard;
}

void options_help(void)
{
    fprintf(stderr, "arguments of the plugin (default, range):\n");
    for (size_t i = 0; i < OPTIONS; i++)
        fprintf(stderr, "  %-10s %-9ld %ld..%ld: %s\n", table[i].name, table[i].standard, table[i].least,
                table[i].most, table[i].meaning);
    for (size_t i = 0; i < PATHS; i++)
        fprintf(stderr, "  %-10s %-9s path: %s\n", paths[i].name, "none", paths[i].meaning);
}

static bool parse_number(const struct option *option, const char *text, long *value, char *error, size_t size)
{
    char *end;

    /* QEMU makes "l2=on" of a bare "l2", and "nol2" is gone. */
    if (!strcmp(text, "on") || !strcmp(text, "off")) {
        *value = !strcmp(text, "on");
    } else {
        errno = 0;
        *value = strtol(text, &end, 0);
        if (!*text || *end || errno) {
            snprintf(error, size, "%s=%s: not a number", option->name, text);
            return false;
        }
    }
    if (*value < option->least || *value > option->most) {
        snprintf(error, size, "%s=%s: must be %ld to %ld", option->name, text, option->least, option->most);
        return false;
    }
    return true;
}

static bool named(const char *name, const char *argument, size_t length)
{
    return strlen(name) == length && !strncmp(name, argument, length);
}

static bool parse_one(struct options *o, char *argument, char *error, size_t size)
{
    char *equals = strchr(argument, '=');
    size_t length = equals ? (size_t)(equals - argument) : strlen(argument);

    if (!equals || !length) {
        snprintf(error, size, "%s: not name=value", argument);
        return false;
    }
    for (size_t i = 0; i < PATHS; i++)
        if (named(paths[i].name, argument, length)) {
            *(const char **)((char *)o + paths[i].offset) = equals + 1;
            return true;
        }
    for (size_t i = 0; i < OPTIONS; i++)
        if (named(table[i].name, argument, length))
            return parse_number(&table[i], equals + 1, field(o, &table[i]), error, size);
    snprintf(error, size, "%s: there is no such argument; help=on lists them", argument);
    return false;
}

bool options_parse(struct options *o, int argc, char **argv, char *error, size_t size)
{
    for (int i = 0; i < argc; i++)
        if (!parse_one(o, argv[i], error, size))
            return false;
    return true;
}

static const struct option *find(const char *name)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    abort();
}

long options_get(const struct options *o, const char *name)
{
    return *field((struct options *)o, find(name));
}

void options_set(struct options *o, const char *name, long value)
{
    const struct option *option = find(name);

    if (value >= option->least && value <= option->most)
        *field(o, option) = value;
}

bool options_check(const struct options *o, int vcpus, char *error, size_t size)
{
    const char *wrong = NULL;

    if (vcpus > MAX_CPUS)
        wrong = "too many vCPUs";
    else if (vcpus % o->sockets)
        wrong = "sockets= does not divide the number of vCPUs";
    else if (o->l3 && o->l3shared >> o->l3ways)
        wrong = "l3shared= has bits beyond l3ways=";
    else if (o->l2 && o->l2shared >> o->l2ways)
        wrong = "l2shared= has bits beyond l2ways=";
    else if (o->bmec && !o->amd)
        wrong = "bmec= needs amd=1";
    else if ((o->smba || o->sdciae) && !o->amd)
        wrong = "smba= and sdciae= need amd=1";
    else if (o->abmc && !(o->amd && o->mbmt && o->mbml))
        wrong = "abmc= needs amd=1, mbmt=1 and mbml=1";
    else if (o->topoext && !o->amd)
        wrong = "topoext= needs amd=1";
    else if (o->topoext && o->l3size % (64 * o->l3ways))
        wrong = "topoext= needs an l3size= that is a number of sets of l3ways= lines of 64 bytes";
    else if (o->l2 && o->amd)
        wrong = "AMD has no allocation of L2 ways: not l2= with amd=1";
    if (wrong)
        snprintf(error, size, "%s (%d vCPUs)", wrong, vcpus);
    return !wrong;
}
