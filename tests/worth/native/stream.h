/* SPDX-License-Identifier: Apache-2.0 */
/* Which lines of its memory a load accesses, one after the other: made by chance, the same for the same seed. */
#ifndef NATIVE_STREAM_H
#define NATIVE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

enum order {
    IDLE,       /* nothing */
    SEQUENTIAL, /* all lines in order, again and again */
    SHUFFLED,   /* all lines in another order, again and again, as pointers are followed */
    RANDOM,     /* any item, each as likely as the others */
    ZIPF,       /* any item, the n-th most likely one with a weight of n^-exponent */
    ENDLESS,    /* a line that was never accessed before */
    ORDERS
};

/* What a load does for a while. */
struct load {
    uint32_t order;
    uint32_t item;         /* lines that are accessed in a row, of RANDOM and ZIPF */
    uint64_t lines;        /* of its memory; at least an item */
    double exponent;       /* of ZIPF */
    uint32_t stores;       /* of 1024 accesses */
    uint32_t instructions; /* that an access comes with, itself included */
    uint32_t overlap;      /* lines that may be underway at once */
    uint64_t cycles;       /* for how long; 0: for ever */
};

/* One entry of Walker's table: this item with a likelihood of share / 2^32, else the other one. */
struct alias {
    uint32_t share, other;
};

struct stream {
    struct load load;
    uint64_t at;            /* where it is, for the orders that have a place */
    uint64_t item, left;    /* the next line of the item, and how many of it are to come */
    uint64_t items, spread; /* spread: a power of 2 that is not below the lines */
    struct alias *aliases;
};

/* A number by chance (xorshift64*); the state must not be 0. */
static inline uint64_t chance(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545f4914f6cdd1dull;
}

/* One of count numbers. */
static inline uint64_t chance_below(uint64_t *state, uint64_t count)
{
    return (unsigned __int128)chance(state) * count >> 64;
}

/* Returns whether there was memory. */
bool stream_make(struct stream *s, const struct load *load, uint64_t *state);
void stream_free(struct stream *s);

/* The next line, counted from the beginning of the load's memory. */
uint64_t stream_next(struct stream *s, uint64_t *state);

#endif
