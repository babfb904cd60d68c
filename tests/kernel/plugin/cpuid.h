/* SPDX-License-Identifier: Apache-2.0 */
/* The CPUID leaves that say what RDT a CPU has. */
#ifndef RDT_CPUID_H
#define RDT_CPUID_H

#include <stdbool.h>
#include <stdint.h>

#include "options.h"

struct cpuid {
    uint32_t eax, ebx, ecx, edx;
};

/* Whether the plugin answers this leaf, in whole or (1, 7 and some of AMD's) in part. */
bool cpuid_ours(const struct options *o, uint32_t leaf, uint32_t subleaf);

/* What CPUID returns, given what the CPU without RDT returned. */
struct cpuid cpuid_answer(const struct options *o, uint32_t leaf, uint32_t subleaf, struct cpuid without);

#endif
