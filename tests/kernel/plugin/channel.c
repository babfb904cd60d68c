/* SPDX-License-Identifier: Apache-2.0 */
#include "channel.h"

uint64_t channel_move(struct channel *c, uint64_t now, uint64_t time)
{
    if (c->free < now)
        c->free = now;
    c->free += time;
    return c->free;
}

static uint64_t look(const uint64_t *number)
{
    return __atomic_load_n(number, __ATOMIC_RELAXED);
}

static void keep(uint64_t *number, uint64_t value)
{
    __atomic_store_n(number, value, __ATOMIC_RELAXED);
}

/* For how long a CPU was here in the window before this one, at most all of it. */
static uint64_t was_here(const struct visitor *v, uint64_t window)
{
    uint64_t seen = look(&v->window), ns = 0;

    if (seen == window)
        ns = look(&v->last_ns);
    else if (seen + 1 == window)
        ns = look(&v->here_ns);
    return ns < CHANNEL_WINDOW_NS ? ns : CHANNEL_WINDOW_NS;
}

uint64_t channel_visit(struct visitor *visitors, unsigned count, unsigned who, uint64_t now_ns, uint64_t ns)
{
    uint64_t window = now_ns / CHANNEL_WINDOW_NS, others = 0, takes;
    struct visitor *own = &visitors[who];

    for (unsigned i = 0; i < count; i++)
        if (i != who)
            others += was_here(&visitors[i], window);
    takes = ns + ns * others / CHANNEL_WINDOW_NS;
    if (own->window != window) {
        keep(&own->last_ns, was_here(own, window));
        keep(&own->here_ns, 0);
        keep(&own->window, window);
    }
    keep(&own->here_ns, own->here_ns + takes);
    return takes;
}
