# SPDX-License-Identifier: Apache-2.0
"""Sharing done well."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests.worth.section import SAME, Bars, Claim, Section, Table

SHARED, CAPPED, BY_NEED, EVENLY = "shared by all", "streaming capped", "exclusive by need", "exclusive evenly"
POLICIES = (SHARED, CAPPED, BY_NEED, EVENLY)
HURT_IN_2018 = "30 %"
AXIS = "VMs in the mix, and below how many of them stream"

Kinds = Mapping[str, Mapping[str, Any]]


def section(found: Sequence[Mapping[str, Any]]) -> Section:
    """See :func:`tests.worth.experiments.mixes.run`."""
    mixes = {_name(one["mix"]): one["policies"] for one in found}
    gains = {
        policy: {mix: throughput(by[policy]) / throughput(by[SHARED]) - 1 for mix, by in mixes.items()}
        for policy in POLICIES[1:]
    }
    groups = [f"{sum(one['mix'].values())}\n{one['mix']['streaming']}" for one in found]
    return Section(
        "Sharing done well: mixes of VMs",
        'N. El-Sayed and others, "KPart: A Hybrid Cache Partitioning-Sharing Technique for Commodity Multicores", HPCA '
        "2018: on a Broadwell, a partition for each program by itself gained 1.7 % of throughput on average and "
        "hurt 30 % of the mixes; a few partitions, each for a cluster of programs, gained 24 %.",
        f"{len(mixes)} mixes of 4 to 12 VMs. *Sensitive* ones follow pointers through 768 KiB (3 of 16 ways), "
        "*streaming* ones read 8 MiB (twice the cache), *light* ones follow pointers through 96 KiB. *Shared by "
        "all*: no promise. *Streaming capped*: ``hw:cache_ways=2``, ``hw:cache_policy=shared`` for those that "
        "stream, one class for all of them. *Exclusive by need*: one way for each that streams or is light, and the "
        "other ways divided among the sensitive. *Exclusive evenly*: 14 ways divided among all (the default group "
        "keeps two; for 12 VMs both are one way each). Throughput is the mean over all VMs of a mix of the time "
        "that an access takes the VM alone, divided by what it takes in the mix, weighed; the figures are relative "
        "to *shared by all*. Three CPUs have all VMs.",
        [_gains_table(gains), _misses_table(mixes)],
        [
            Bars(
                "mixes",
                "Throughput of each mix, relative to no promise",
                "more throughput, per cent",
                groups,
                {policy: [100 * gain for gain in by_mix.values()] for policy, by_mix in gains.items()},
                AXIS,
                colour=1,
            ),
            Bars(
                "misses",
                "How often the sensitive VMs miss the cache, by mix and policy",
                "miss ratio",
                groups,
                {policy: [by[policy]["sensitive"]["miss_ratio"] for by in mixes.values()] for policy in POLICIES},
                AXIS,
            ),
        ],
        _claims(gains, mixes),
        "A policy that looks: KPart and others measure programs, and change partitions while they run; a flavor stays. "
        "Our VMs are of three kinds and do one thing each; the mixes of the literature are programs with phases. Where "
        "VMs share a CPU, they empty its L2 for each other in each case. Prefetchers and bandwidth, as everywhere.",
    )


def throughput(kinds: Kinds) -> float:
    """Of a mix: 1 is every VM as fast as alone."""
    return statistics.fmean(1 / (1 + slower) for one in kinds.values() for slower in one["slower"])


def _name(mix: Mapping[str, int]) -> str:
    return f"{sum(mix.values())} VMs, {mix['streaming'] or 'none'} streaming"


def _gains_table(gains: Mapping[str, Mapping[str, float]]) -> Table:
    mixes = list(next(iter(gains.values())))
    rows = [(mix, *(f"{by_mix[mix]:+.0%}" for by_mix in gains.values())) for mix in mixes]
    means = ("*mean*", *(f"{_mean(by_mix):+.1%}" for by_mix in gains.values()))
    return Table(("Mix", *(f"Throughput, {policy}" for policy in gains)), [*rows, means])


def _misses_table(mixes: Mapping[str, Mapping[str, Kinds]]) -> Table:
    def cell(kinds: Kinds) -> str:
        total = sum(one["misses"] for one in kinds.values())
        shares = (
            f"{kinds[kind]['misses'] / max(1, total):.0%}" if kind in kinds else "-"
            for kind in ("sensitive", "streaming", "light")
        )
        return " / ".join(shares)

    return Table(
        ("Mix", *(f"Misses of sensitive / streaming / light, {policy}" for policy in POLICIES)),
        [(mix, *(cell(by[policy]) for policy in POLICIES)) for mix, by in mixes.items()],
    )


def _mean(by_mix: Mapping[str, float]) -> float:
    return statistics.fmean(by_mix.values())


def _claims(gains: Mapping[str, Mapping[str, float]], mixes: Mapping[str, Mapping[str, Kinds]]) -> list[Claim]:
    def hurt(policy: str) -> list[str]:
        return [mix for mix, gain in gains[policy].items() if gain < -SAME]

    def of_all(policy: str) -> str:
        return f"{len(hurt(policy))} of {len(mixes)}" + (f": {'; '.join(hurt(policy))}" if hurt(policy) else "")

    capped, by_need, evenly = (_mean(gains[policy]) for policy in (CAPPED, BY_NEED, EVENLY))
    streaming = [mix for mix, by in mixes.items() if "streaming" in by[SHARED]]
    fewer = [
        mix
        for mix in streaming
        if mixes[mix][CAPPED]["sensitive"]["miss_ratio"] < (1 - SAME) * mixes[mix][SHARED]["sensitive"]["miss_ratio"]
    ]
    return [
        Claim(
            f"Ways for each VM by itself, divided evenly, hurt some mixes (here {of_all(EVENLY)}; in "
            f"2018 {HURT_IN_2018}).",
            bool(hurt(EVENLY)),
        ),
        Claim(
            f"So do ways for each VM by itself, divided by need (here {of_all(BY_NEED)}).",
            bool(hurt(BY_NEED)),
        ),
        Claim(
            f"One class for those that stream gains more on average than ways for each VM (here {capped:+.1%}, against "
            f"{by_need:+.1%} by need and {evenly:+.1%} evenly; in 2018 +24 % against +1.7 %).",
            capped > max(by_need, evenly),
        ),
        Claim(f"It hurts no mix (here {of_all(CAPPED)}).", not hurt(CAPPED)),
        Claim(
            "Wherever some stream, the sensitive VMs miss more seldom with that class than without "
            f"(here in {len(fewer)} of {len(streaming)} mixes).",
            len(fewer) == len(streaming),
        ),
    ]
