/* SPDX-License-Identifier: Apache-2.0 */
#include "decode.h"

#include <stdbool.h>

/* Legacy prefixes, and REX in 64-bit mode (SDM volume 2, 2.1.1 and 2.2.1); before 0F they change nothing here. */
static bool prefix(uint8_t byte)
{
    switch (byte) {
    case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: /* segments */
    case 0x66: case 0x67: /* sizes */
    case 0xf2: case 0xf3: /* repetition */
        return true;
    default:
        return (byte & 0xf0) == 0x40;
    }
}

enum instruction decode(const uint8_t *bytes, size_t length)
{
    size_t i = 0;

    while (i < length && prefix(bytes[i]))
        i++;
    if (length - i == 3 && bytes[i] == 0x0f && bytes[i + 1] == 0x01 && bytes[i + 2] == 0xd8)
        return VMRUN;
    if (length - i != 2 || bytes[i] != 0x0f)
        return OTHER;
    switch (bytes[i + 1]) {
    case 0xa2:
        return CPUID;
    case 0x32:
        return RDMSR;
    case 0x30:
        return WRMSR;
    case 0x33:
        return RDPMC;
    case 0x09: /* WBNOINVD is the same with F3 before, which CPUs that lack it ignore */
        return WBINVD;
    default:
        return OTHER;
    }
}
