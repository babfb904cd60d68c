/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the caches as a library, for tests in Python: tests/kernel/cachemodel/library.py loads it. */
#include <stdlib.h>

#include "../hierarchy.h"
#include "../report.h"
#include "../window.h"

struct hierarchy *replay_make(unsigned cpus, unsigned domains, unsigned rmids, const struct geometry *g,
                              const struct extra *extra)
{
    struct hierarchy *h = malloc(sizeof *h);

    if (!h || !hierarchy_make(h, cpus, domains, rmids) || !hierarchy_extra(h, extra) || !hierarchy_caches(h, g))
        abort();
    return h;
}

void replay_free(struct hierarchy *h)
{
    hierarchy_free(h);
    free(h);
}

void replay_report(struct hierarchy *h, const char *path)
{
    if (!report_open(path))
        abort();
    report(h, 0, "asked");
}

/* Make accesses, and say of each where it was served from. */
void replay_accesses(struct hierarchy *h, const struct access *accesses, size_t count, uint8_t *served)
{
    for (size_t i = 0; i < count; i++)
        served[i] = hierarchy_access(h, &accesses[i]).served;
}
