/* SPDX-License-Identifier: Apache-2.0 */
#include "channel.h"

uint64_t channel_move(struct channel *c, uint64_t now, uint64_t time)
{
    if (c->free < now)
        c->free = now;
    c->free += time;
    return c->free;
}
