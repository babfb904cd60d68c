/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *file;

bool log_open(const char *path)
{
    file = fopen(path, "w");
    return file;
}

void log_line(double seconds, unsigned cpu, uint32_t reg, uint64_t value)
{
    if (!file)
        return;
    fprintf(file, "{\"t\":%.6f,\"cpu\":%u,\"reg\":\"0x%" PRIx32 "\",\"val\":\"0x%" PRIx64 "\"}\n", seconds, cpu, reg,
            value);
    if (fflush(file)) {
        perror("rdt plugin: the log");
        exit(1);
    }
}
