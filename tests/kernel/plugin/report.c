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

static void line(struct tally t, struct share s, double seconds, const char *why, unsigned domain, unsigned rmid)
{
    static const char *const kinds[KINDS] = { "load", "store", "fetch" };

    fprintf(file, "{\"t\":%.6f,\"why\":\"%s\",\"domain\":%u,\"rmid\":%u", seconds, why, domain, rmid);
    for (unsigned kind = 0; kind < KINDS; kind++)
        fprintf(file, ",\"%s\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", kinds[kind], t.served[kind][FROM_L2],
                t.served[kind][FROM_L3], t.served[kind][FROM_MEMORY]);
    fprintf(file, ",\"instructions\":%" PRIu64 ",\"writebacks\":%" PRIu64 ",\"occupancy\":%" PRIu64, t.instructions,
            s.writebacks, s.lines * LINE);
    fprintf(file, ",\"waited_ns\":%" PRIu64 "}\n", t.waited_ns);
}

void report(const struct hierarchy *h, double seconds, const char *why)
{
    if (!file)
        return;
    for (unsigned domain = 0; domain < h->domains; domain++)
        for (unsigned rmid = 0; rmid < h->rmids; rmid++) {
            struct tally t = hierarchy_tally(h, domain, rmid);

            if (t.instructions)
                line(t, hierarchy_share(h, domain, rmid), seconds, why, domain, rmid);
        }
    if (fflush(file)) {
        perror("rdt plugin: the counts");
        exit(1);
    }
}
