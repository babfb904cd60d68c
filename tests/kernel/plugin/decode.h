/* SPDX-License-Identifier: Apache-2.0 */
/* Telling the instructions that matter from all others. */
#ifndef RDT_DECODE_H
#define RDT_DECODE_H

#include <stddef.h>
#include <stdint.h>

enum instruction { OTHER, CPUID, RDMSR, WRMSR, WBINVD, RDPMC, VMRUN };

enum instruction decode(const uint8_t *bytes, size_t length);

#endif
