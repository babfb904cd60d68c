/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <inttypes.h>
#include <stdio.h>

static FILE *file;

bool log_open(const char *path)
{
    file = fopen(path, "w");
    return file;
}

void log_line(double seconds, unsigned cpu, const char *what, uint64_t reg, uint64_t value)
{
    if (!file)
        return;
    fprintf(file, "{\"t\":%.6f,\"cpu\":%u,\"op\":\"%s\",\"reg\":\"0x%" PRIx64 "\",\"val\":\"0x%" PRIx64 "\"}\n",
            seconds, cpu, what, reg, value);
    fflush(file);
}
