/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <math.h>
#include <stdlib.h>

/*
 * Walker's alias method (Vose, 1991): one number by chance gives an item, whatever the weights are. Which item is how
 * likely is by chance, too, so that the likely ones are not neighbours.
 */
static bool make_aliases(struct stream *s, uint64_t *state)
{
    uint32_t n = s->items, *rank = malloc(n * sizeof *rank), *todo = malloc(n * sizeof *todo);
    double *weight = malloc(n * sizeof *weight), sum = 0;
    uint32_t small = 0, large = n; /* todo: the light ones from below, the heavy ones from above */

    s->aliases = malloc(n * sizeof *s->aliases);
    if (s->aliases && rank && todo && weight) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t k = chance_below(state, i + 1);

            rank[i] = rank[k];
            rank[k] = i;
        }
        for (uint32_t i = 0; i < n; i++)
            sum += weight[i] = pow(rank[i] + 1, -s->load.exponent);
        for (uint32_t i = 0; i < n; i++) {
            weight[i] *= n / sum;
            s->aliases[i] = (struct alias){ UINT32_MAX, i };
            todo[weight[i] < 1 ? small++ : --large] = i;
        }
        while (small && large < n) {
            uint32_t light = todo[--small], heavy = todo[large];

            s->aliases[light] = (struct alias){ weight[light] * UINT32_MAX, heavy };
            weight[heavy] -= 1 - weight[light];
            if (weight[heavy] < 1) {
                large++;
                todo[small++] = heavy;
            }
        }
    }
    free(rank);
    free(todo);
    free(weight);
    return s->aliases && sum > 0;
}

bool stream_make(struct stream *s, const struct load *load, uint64_t *state)
{
    *s = (struct stream){ .load = *load, .items = load->lines / load->item, .spread = 1 };
    while (s->spread < load->lines)
        s->spread *= 2;
    return load->order != ZIPF || make_aliases(s, state);
}

void stream_free(struct stream *s)
{
    free(s->aliases);
    *s = (struct stream){ 0 };
}

static uint64_t likely_item(const struct stream *s, uint64_t *state)
{
    unsigned __int128 product = (unsigned __int128)chance(state) * s->items;
    uint64_t item = product >> 64;
    const struct alias *alias = &s->aliases[item];

    return (uint32_t)((uint64_t)product >> 32) <= alias->share ? item : alias->other;
}

/* A linear congruential generator that visits all numbers below spread; the factor less 1 is a multiple of 4. */
static uint64_t shuffled(struct stream *s)
{
    do
        s->at = (s->at * 0xd1342543de82ef95ull + 0x632be59bd9b4e019ull) & (s->spread - 1);
    while (s->at >= s->load.lines);
    return s->at;
}

uint64_t stream_next(struct stream *s, uint64_t *state)
{
    switch (s->load.order) {
    case SEQUENTIAL:
        s->at = s->at + 1 < s->load.lines ? s->at + 1 : 0;
        return s->at;
    case SHUFFLED:
        return shuffled(s);
    case ENDLESS:
        return s->at++;
    }
    if (!s->left) {
        s->item = (s->aliases ? likely_item(s, state) : chance_below(state, s->items)) * s->load.item;
        s->left = s->load.item;
    }
    s->left--;
    return s->item++;
}
