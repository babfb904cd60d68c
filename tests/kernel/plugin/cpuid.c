/* SPDX-License-Identifier: Apache-2.0 */
#include "cpuid.h"

#include "pmu.h"

#define BIT(n) (1u << (n))

enum {
    LEAF_VERSION = 1,
    LEAF_FEATURES = 7,
    LEAF_PERFMON = 0xa,
    LEAF_MONITORING = 0xf,
    LEAF_ALLOCATION = 0x10,
    LEAF_AMD_EXTENSIONS = 0x80000001,
    LEAF_AMD_FEATURES = 0x80000008,
    LEAF_AMD_CACHES = 0x8000001d,
    LEAF_AMD_QOS = 0x80000020,
};
enum { AMD_L3 = 3 }; /* CPUID.0x8000001D: the subleaf of the L3 */

static bool monitors(const struct options *o)
{
    return o->cmt || o->mbmt || o->mbml;
}

static bool allocates(const struct options *o)
{
    return o->l3 || o->l2 || o->mba;
}

bool cpuid_ours(const struct options *o, uint32_t leaf, uint32_t subleaf)
{
    switch (leaf) {
    case LEAF_VERSION:
    case LEAF_PERFMON:
        return o->pmu && !o->amd;
    case LEAF_FEATURES:
        return subleaf == 0;
    case LEAF_MONITORING:
    case LEAF_ALLOCATION:
        return true;
    case LEAF_AMD_FEATURES:
    case LEAF_AMD_QOS:
        return o->amd;
    case LEAF_AMD_EXTENSIONS:
        return o->amd && (o->topoext || o->pmu);
    case LEAF_AMD_CACHES:
        return o->topoext && subleaf == AMD_L3;
    default:
        return false;
    }
}

/* CPUID.1: ECX bit 15 is the register IA32_PERF_CAPABILITIES. */
static struct cpuid version(struct cpuid r)
{
    r.ecx |= BIT(15);
    return r;
}

/*
 * CPUID.0xA (SDM volume 3B, "Architectural Performance Monitoring Version 2"): EAX has the version, the counters, their
 * bits, and the length of what EBX says: a 1 for each architectural event that is not there, here reference cycles
 * (bit 2), branches (5) and mispredicted ones (6). EDX has the fixed counters and their bits.
 */
static struct cpuid perfmon(void)
{
    struct cpuid r = {
        .eax = 2 | INTEL_COUNTERS << 8 | COUNTER_BITS << 16 | 7 << 24,
        .ebx = BIT(2) | BIT(5) | BIT(6),
        .edx = INTEL_FIXED | COUNTER_BITS << 5,
    };
    return r;
}

/* CPUID.7.0: EBX bit 12 is monitoring (SDM 17.18.3), bit 15 allocation (SDM 17.19.4.1). */
static struct cpuid features(const struct options *o, struct cpuid r)
{
    r.ebx |= monitors(o) ? BIT(12) : 0;
    r.ebx |= allocates(o) ? BIT(15) : 0;
    return r;
}

/*
 * CPUID.0x80000008: EBX bit 6 is the bandwidth enforcement extension (APM 3, appendix E), in place of Intel's bit 3 of
 * CPUID.0x10.0:EBX; Linux takes either (arch/x86/kernel/cpu/scattered.c, X86_FEATURE_MBA).
 */
static struct cpuid amd_features(const struct options *o, struct cpuid r)
{
    r.ebx |= o->mba ? BIT(6) : 0;
    return r;
}

/*
 * CPUID.0x80000001: ECX bit 22 are the topology extensions (APM 3, appendix E), without which Linux does not look at
 * CPUID.0x8000001D and takes each CPU of a socket for the owner of an L3 (arch/x86/kernel/cpu/cacheinfo.c). QEMU's
 * software emulation answers that leaf, and leaves out the bit. ECX bit 23 are six performance counters.
 */
static struct cpuid amd_extensions(const struct options *o, struct cpuid r)
{
    r.ecx |= (o->topoext ? BIT(22) : 0) | (o->pmu ? BIT(23) : 0);
    return r;
}

/*
 * CPUID.0x8000001D (APM 3, appendix E): EBX[31:22] are the cache's ways, ECX its sets, each less one; lines of 64 bytes
 * are QEMU's, too.
 */
static struct cpuid amd_l3(const struct options *o, struct cpuid r)
{
    r.ebx = (r.ebx & (BIT(22) - 1)) | (uint32_t)(o->l3ways - 1) << 22;
    r.ecx = o->l3size / 64 / o->l3ways - 1;
    return r;
}

/*
 * CPUID.0xF: subleaf 0 has the greatest RMID of all in EBX and, in EDX bit 1, that the L3 is monitored (SDM 17.18.4);
 * subleaf 1 has, of the L3, the traffic counters' bits over 24, the factor to bytes, the greatest RMID and the events
 * (SDM 17.18.5). AMD has the same leaf (APM 19, L3 Cache Monitoring).
 */
static struct cpuid monitoring(const struct options *o, uint32_t subleaf)
{
    struct cpuid r = { 0 };

    if (!monitors(o))
        return r;
    if (subleaf == 0) {
        r.ebx = o->rmids - 1;
        r.edx = BIT(1);
    } else if (subleaf == 1) {
        r.eax = o->mbmoff;
        r.ebx = o->upscale;
        r.ecx = o->rmids - 1;
        r.edx = (o->cmt ? BIT(0) : 0) | (o->mbmt ? BIT(1) : 0) | (o->mbml ? BIT(2) : 0);
    }
    return r;
}

/*
 * CPUID.0x10, subleaf 1 (L3) and 2 (L2): EAX[4:0] is the length of a mask less one, EBX the ways shared with devices,
 * ECX bit 2 CDP and bit 3 masks with gaps, EDX[15:0] the greatest class (SDM 17.19.4.2).
 */
static struct cpuid ways(long length, long shared, long cdp, long noncontiguous, long classes)
{
    struct cpuid r = {
        .eax = length - 1,
        .ebx = shared,
        .ecx = (cdp ? BIT(2) : 0) | (noncontiguous ? BIT(3) : 0),
        .edx = classes - 1,
    };
    return r;
}

/*
 * Subleaf 0: EBX bits 1, 2, 3 for L3, L2 and memory bandwidth. Subleaf 3: EAX[11:0] the greatest throttling value less
 * one, ECX bit 2 that it is linear, EDX[15:0] the greatest class (SDM 17.19.7.1). AMD says nothing of bandwidth here.
 */
static struct cpuid allocation(const struct options *o, uint32_t subleaf)
{
    bool bandwidth = o->mba && !o->amd;
    struct cpuid r = { 0 };

    switch (subleaf) {
    case 0:
        r.ebx = (o->l3 ? BIT(1) : 0) | (o->l2 ? BIT(2) : 0) | (bandwidth ? BIT(3) : 0);
        break;
    case 1:
        if (o->l3)
            r = ways(o->l3ways, o->l3shared, o->l3cdp, o->l3noncont, o->l3clos);
        break;
    case 2:
        if (o->l2)
            r = ways(o->l2ways, o->l2shared, o->l2cdp, o->l2noncont, o->l2clos);
        break;
    case 3:
        if (bandwidth) {
            r.eax = o->mbamax - 1;
            r.ecx = BIT(2);
            r.edx = o->mbaclos - 1;
        }
        break;
    }
    return r;
}

/*
 * CPUID.0x80000020 (APM 3, appendix E; APM 2, 19): subleaf 0, EBX bit 1 is bandwidth enforcement, bit 2 that of slow
 * memory, bit 3 configurable events, bit 5 assignable counters, bit 6 the enforcement of where devices allocate. Subleaf
 * 1, and 2 for slow memory: EAX the bits of a bandwidth, EDX the greatest class. Subleaf 3: EBX how many counters can be
 * configured, ECX the events there are. Subleaf 5: EBX[15:0] the greatest assignable counter.
 */
static struct cpuid amd_qos(const struct options *o, uint32_t subleaf)
{
    struct cpuid r = { 0 };

    switch (subleaf) {
    case 0:
        r.ebx = (o->mba ? BIT(1) : 0) | (o->smba ? BIT(2) : 0) | (o->bmec ? BIT(3) : 0) | (o->abmc ? BIT(5) : 0) |
                (o->sdciae ? BIT(6) : 0);
        break;
    case 1:
    case 2:
        if (subleaf == 1 ? o->mba : o->smba) {
            r.eax = o->mbalen;
            r.edx = o->mbaclos - 1;
        }
        break;
    case 3:
        if (o->bmec || o->abmc) {
            r.ebx = o->bmec ? 2 : 0;
            r.ecx = 0x7f;
        }
        break;
    case 5:
        if (o->abmc)
            r.ebx = o->abmc - 1;
        break;
    }
    return r;
}

struct cpuid cpuid_answer(const struct options *o, uint32_t leaf, uint32_t subleaf, struct cpuid without)
{
    switch (leaf) {
    case LEAF_VERSION:
        return version(without);
    case LEAF_PERFMON:
        return perfmon();
    case LEAF_FEATURES:
        return features(o, without);
    case LEAF_MONITORING:
        return monitoring(o, subleaf);
    case LEAF_ALLOCATION:
        return allocation(o, subleaf);
    case LEAF_AMD_FEATURES:
        return amd_features(o, without);
    case LEAF_AMD_EXTENSIONS:
        return amd_extensions(o, without);
    case LEAF_AMD_CACHES:
        return amd_l3(o, without);
    case LEAF_AMD_QOS:
        return amd_qos(o, subleaf);
    default:
        return without;
    }
}
