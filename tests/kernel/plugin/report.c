/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *file;

bool report_open(const char *path)
{
    file = fopen(path, "w");
    return file;
}

static void evicted(const struct hierarchy *h, unsigned domain, unsigned rmid)
{
    const char *before = "";

    if (!h->l3[domain].evictions.lines)
        return;
    fputs(",\"evicted\":{", file);
    for (unsigned of = 0; of < h->rmids; of++) {
        uint64_t lines = hierarchy_evicted(h, domain, rmid, of);

        if (!lines)
            continue;
        fprintf(file, "%s\"%u\":%" PRIu64, before, of, lines);
        before = ",";
    }
    fputs("}", file);
}

static void line(const struct hierarchy *h, struct tally t, double seconds, const char *why, unsigned domain,
                 unsigned rmid)
{
    struct share s = hierarchy_share(h, domain, rmid);
    static const char *const kinds[KINDS] = { "load", "store", "fetch" };

    fprintf(file, "{\"t\":%.6f,\"why\":\"%s\",\"domain\":%u,\"rmid\":%u", seconds, why, domain, rmid);
    for (unsigned kind = 0; kind < KINDS; kind++)
        fprintf(file, ",\"%s\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", kinds[kind], t.served[kind][FROM_L2],
                t.served[kind][FROM_L3], t.served[kind][FROM_MEMORY]);
    fprintf(file, ",\"instructions\":%" PRIu64 ",\"writebacks\":%" PRIu64 ",\"occupancy\":%" PRIu64, t.instructions,
            s.writebacks, s.lines * LINE);
    fprintf(file, ",\"waited_ns\":%" PRIu64, t.waited_ns);
    evicted(h, domain, rmid);
    fputs("}\n", file);
}

void report(const struct hierarchy *h, double seconds, const char *why)
{
    if (!file)
        return;
    for (unsigned domain = 0; domain < h->domains; domain++)
        for (unsigned rmid = 0; rmid < h->rmids; rmid++) {
            struct tally t = hierarchy_tally(h, domain, rmid);

            if (t.instructions)
                line(h, t, seconds, why, domain, rmid);
        }
    if (fflush(file)) {
        perror("rdt plugin: the counts");
        exit(1);
    }
}
