# SPDX-License-Identifier: Apache-2.0
"""The core: what a noisy neighbour does, and what undoes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worth.section import Bars, Claim, Section, Table


def section(found: Mapping[str, Any]) -> Section:
    """See :func:`tests.worth.experiments.four_cases.run`."""
    cases = found["cases"]
    misses = {case: one["miss_ratio"] for case, one in cases.items()}

    def tenth(case: str) -> bool:
        return bool(misses["noisy"] > 10 * misses[case])

    return Section(
        "A noisy neighbour, and what undoes it",
        "The usual first experiment on cache partitioning, without figures of its own: a program that fits into the "
        "cache, beside one that does not.",
        "A VM follows pointers through 1.5 MiB of a cache of 4 MiB (6 of 16 ways). Its neighbour reads "
        f"{found['noise'] >> 20} MiB over and over. *protected*: the VM's flavor has ``hw:cache_ways=8``. *capped*: "
        "it is the neighbour's that has ``hw:cache_ways=2`` with ``hw:cache_policy=shared``. Then the VM is "
        "protected again while the agent is stopped; and at last the agent runs again, and the flavor has lost its "
        "ways. All of that happens while both VMs run, in turns, on one CPU.",
        [
            Table(
                ("Case", "Miss ratio of the VM", "Held of its 1.5 MiB", "Weighed time of an access"),
                [
                    (
                        case,
                        f"{one['miss_ratio']:.3f}",
                        f"{min(1.0, one['occupancy'] / found['working_set']):.0%}",
                        f"{one['ns_per_access']:.0f} ns",
                    )
                    for case, one in cases.items()
                ],
            )
        ],
        [
            Bars(
                "four-cases",
                "How often the VM misses the cache, by case",
                "miss ratio",
                list(misses),
                {"the VM": list(misses.values())},
            )
        ],
        [
            Claim("Beside its neighbour more than half of the VM's accesses to the L3 miss.", misses["noisy"] > 0.5),
            Claim("With ways of its own it misses at least ten times more seldom.", tenth("protected")),
            Claim("A cap on the neighbour does that, too.", tenth("capped")),
            Claim("A promise outlasts the agent: ten times more seldom.", tenth("protected, agent stopped")),
            Claim("Without the flavor's ways more than half miss again.", misses["ways taken back"] > 0.5),
        ],
        "Prefetchers, which would hide some of the neighbour's misses and bring in more of its lines. What is held is "
        "that of one moment, after a turn of the one VM or of the other. It can be less than the working set although "
        "nothing is missed: lines that the VM brought in under an earlier group count for that one. A mask that "
        "shrinks evicts nothing: had the neighbour so little memory that it came back to its lines sooner than the "
        "VM to its own, it would keep what it has in the VM's ways "
        "for long.",
    )
