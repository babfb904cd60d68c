/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accesses memory as it is told, so that a test knows what a cache must see.
 *
 * walker BYTES: takes that much memory, of 2 MiB pages if there are any, and says "ready". Then each line of standard input
 * is an order, after which it says "done":
 *     random N    loads one word of N lines, each chosen at random
 *     stream N    loads one word of N lines in their order, from where the last order ended
 *     store N     the same, but stores
 *     endless     streams, and never comes back
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20 };

static volatile uint64_t *memory;
static size_t lines, next;

static volatile uint64_t *line(size_t number)
{
    return memory + number * (LINE / sizeof *memory);
}

/* Marsaglia's xorshift, in a register: the loads that count are the only ones. */
static void at_random(long count)
{
    static uint64_t seed = 88172645463325252ull;
    uint64_t state = seed;

    while (count-- > 0) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (void)*line(state % lines);
    }
    seed = state;
}

static void in_order(long count, bool store)
{
    size_t number = next;

    while (count-- > 0) {
        number = number + 1 < lines ? number + 1 : 0;
        if (store)
            *line(number) = count;
        else
            (void)*line(number);
    }
    next = number;
}

static void carry_out(const char *order)
{
    long count = 0;
    char what[16];

    if (sscanf(order, "%15s %ld", what, &count) < 1)
        return;
    if (!strcmp(what, "random"))
        at_random(count);
    else if (!strcmp(what, "stream") || !strcmp(what, "store"))
        in_order(count, !strcmp(what, "store"));
    while (!strcmp(what, "endless"))
        in_order(lines, false);
}

int main(int argc, char **argv)
{
    size_t size = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    char order[64], *taken;

    lines = size / LINE;
    taken = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!lines || taken == MAP_FAILED)
        return 1;
    taken += HUGE_PAGE - (uintptr_t)taken % HUGE_PAGE;
    madvise(taken, size, MADV_HUGEPAGE);
    memset(taken, 1, size);
    memory = (volatile uint64_t *)taken;
    puts("ready");
    fflush(stdout);
    while (fgets(order, sizeof order, stdin)) {
        carry_out(order);
        puts("done");
        fflush(stdout);
    }
    return 0;
}
