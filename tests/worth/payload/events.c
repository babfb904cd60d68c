/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that waits, works for a moment, and waits again, as a handler of interrupts does.
 *
 *   events CPU RMID DEVICE SIZE EVENTS REST OTHERS LINES
 *                                 DEVICE is a file to map, or "-" for memory of its own; SIZE in bytes
 *   events CPU 0 stream SIZE 0 0 0 0
 *                                 reads all lines in order, for ever: somebody else's noise
 *
 * What there is to do is to follow pointers through all lines once. Before each event it rests for REST microseconds, again
 * and again until the RMID OTHERS has brought as many lines from memory as chance says, between 0 and LINES: so what
 * happened meanwhile does not depend on how fast the machine is.
 *
 * It says "ready"; at a line of standard input it begins; in the end it says, for each event, how many lines came from the
 * L3 and how many from memory: by the counters of the cache model, of its RMID (tests/kernel/cachemodel/switch.py).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <signal.h>

enum { LINE = 64, HUGE = 2 << 20, COUNTS = 0x52450000, OF_RMID = 16, LOADS_L3 = 1, LOADS_MEMORY = 2 };

static const uint64_t SEED = 88172645463325252u;

struct line {
    struct line *next;
    uint64_t order;
    char rest[LINE - 16];
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t counted(int msr, int rmid, int what)
{
    uint64_t value;

    if (pread(msr, &value, sizeof value, COUNTS + rmid * OF_RMID + what) != sizeof value)
        die("the model's counters");
    return value;
}

static struct line *region(const char *device, size_t size)
{
    char *found;
    int file;

    if (*device == '/') {
        file = open(device, O_RDWR);
        found = file < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (found == MAP_FAILED)
            die(device);
        return (struct line *)found;
    }
    found = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        die("memory");
    found += HUGE - (uintptr_t)found % HUGE;
    madvise(found, size, MADV_HUGEPAGE);
    return (struct line *)found;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static void rest(int msr, int microseconds, int others, uint64_t lines)
{
    uint64_t until = counted(msr, others, LOADS_MEMORY) + lines;

    do
        usleep(microseconds);
    while (counted(msr, others, LOADS_MEMORY) < until);
}

/* One circle through all lines (Sattolo), the same each time. */
static void make_circle(struct line *lines, size_t n)
{
    uint64_t state = SEED;

    for (size_t i = 0; i < n; i++)
        lines[i].order = i;
    for (size_t i = n - 1; i > 0; i--) {
        uint64_t j = next_random(&state) % i, kept = lines[i].order;

        lines[i].order = lines[j].order;
        lines[j].order = kept;
    }
    for (size_t i = 0; i < n; i++)
        lines[i].next = &lines[lines[i].order];
}

int main(int argc, char **argv)
{
    uint64_t others_lines, state = SEED;
    size_t lines, events;
    struct line *area, *at;
    uint64_t(*found)[2];
    cpu_set_t cpus;
    char path[64];
    int msr, rmid;

    if (argc != 9)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CPU_ZERO(&cpus);
    CPU_SET(atoi(argv[1]), &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus))
        die("the CPU");
    rmid = atoi(argv[2]);
    lines = strtoull(argv[4], NULL, 0) / LINE;
    events = strtoull(argv[5], NULL, 0);
    others_lines = strtoull(argv[8], NULL, 0);
    area = at = region(argv[3], lines * LINE);
    make_circle(area, lines);
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF)
        return 1;
    while (!strcmp(argv[3], "stream"))
        for (size_t i = 0; i < lines; i++)
            *(volatile uint64_t *)&area[i].order;
    snprintf(path, sizeof path, "/dev/cpu/%d/msr", atoi(argv[1]));
    msr = open(path, O_RDONLY);
    found = calloc(events, sizeof *found);
    if (msr < 0 || !found)
        die(path);
    for (size_t e = 0; e < events; e++) {
        uint64_t before[2];

        rest(msr, atoi(argv[6]), atoi(argv[7]), next_random(&state) % (others_lines + 1));
        for (int k = 0; k < 2; k++)
            before[k] = counted(msr, rmid, LOADS_L3 + k);
        for (size_t i = 0; i < lines; i++)
            at = *(struct line *volatile *)&at->next;
        for (int k = 0; k < 2; k++)
            found[e][k] = counted(msr, rmid, LOADS_L3 + k) - before[k];
    }
    for (size_t e = 0; e < events; e++)
        printf("%lu %lu\n", found[e][0], found[e][1]);
    return 0;
}
