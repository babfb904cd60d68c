# SPDX-License-Identifier: Apache-2.0
"""Who slows whom: what insight says of generated mixes, beside the truth of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worth.section import Bars, Claim, Curves, Section, Table

IN_TIME = 30
INTERVAL = 2
"""Seconds between two samples of an agent (``[telemetry] interval``); of the mixes there is one a second."""
PMU, NO_PMU = "pmu", "no pmu"
WATCHER = "the old strategy of Watcher"
TITLES = {
    PMU: "with a PMU",
    NO_PMU: "without",
    "pmu, limit unknown": "with a PMU, memory's limit unknown",
    "no pmu, limit unknown": "without, memory's limit unknown",
    WATCHER: "no insight: the old strategy of Watcher, mended",
}
DRAWN = {PMU: "with a PMU", NO_PMU: "without", WATCHER: "Watcher's old strategy"}


def section(found: Mapping[str, Any]) -> Section:
    """See :func:`tests.worth.experiments.neighbours.run`."""
    sights, others = found["sights"], found["others"]
    first = sights[PMU]
    shown = {sight: sights[sight] for sight in TITLES if sight in sights}
    drawn = {title: shown[sight] for sight, title in DRAWN.items() if sight in shown}
    return Section(
        "Who slows whom",
        "CPI2 (EuroSys 2013) finds VMs that take more cycles for an instruction than usual, and whose neighbour's work "
        "goes with that; Google lets it throttle the culprit. It needs a PMU. Watcher, OpenStack's optimizer, had a "
        "strategy *noisy_neighbor*: a VM that holds 35 % less of the L3 than in the period before suffers, and one "
        "that holds 35 % more is noisy. It is deprecated, and got no value at all.",
        f"{first['planted']} mixes of 2 to 12 VMs in which one begins to do harm, and {first['quiet']} in which no "
        f"VM harms another, drawn by seeds from {_number(found['first_seed'])} on. They need no guest: generated "
        "accesses go through the same model of the caches, with a memory channel that VMs share. Times and sizes are "
        "scaled: the cache has 512 KiB, a second 1 000 000 cycles. VMs have phases, some have ways of their own. "
        "insight sees a sample a second: occupancy, bandwidth, and with a PMU cycles, instructions, references and "
        "misses. A VM is *harmed* if it takes more than 10 % more cycles for an instruction than in a run of the "
        "same mix without the culprit. The cause is the cache if the additional misses would cost two thirds of "
        "that at an idle memory, and memory bandwidth if they would cost less than a third; in between, both "
        "answers are taken. A culprit is *named* if within 30 s of its onset it is accused with a VM that it "
        "harms and with the cause. An accusation that the model does not confirm is *false*; the model has to "
        "confirm each by a run without the accused, over five seconds. Watcher's strategy is mended for that: its "
        "periods are ten seconds instead of a hundred, and of the VMs on either side it takes the one that lost or "
        "gained most.",
        [
            Table(
                (
                    "insight has",
                    "Named",
                    "of the cache",
                    "of bandwidth",
                    "Mixes with a false accusation",
                    "Accused in quiet mixes",
                ),
                [
                    (
                        TITLES[sight],
                        _of(one["named"], one["planted"]),
                        _of(one["named cache"], one["planted cache"]),
                        _of(one["named bandwidth"], one["planted bandwidth"]),
                        f"{one['false in planted'] + one['false in harmless']} of {one['planted'] + one['harmless']}",
                        f"{one['accused in quiet']} of {one['quiet']}",
                    )
                    for sight, one in shown.items()
                ],
            )
        ],
        [
            Bars(
                "neighbours",
                "Planted culprits that were named within 30 s, with the cause",
                "per cent",
                ["the cache", "memory bandwidth"],
                {
                    title: [
                        100 * one[f"named {meant}"] / max(1, one[f"planted {meant}"])
                        for meant in ("cache", "bandwidth")
                    ]
                    for title, one in drawn.items()
                },
                axis="what the culprit takes",
            ),
            Curves(
                "neighbours-seconds",
                "How soon those were named that were named",
                "seconds from the onset",
                {title: one["seconds"] for title, one in drawn.items() if one["seconds"]},
            ),
        ],
        [
            _named(sights[PMU], 0.95, "With a PMU"),
            _named(sights[NO_PMU], 0.80, "Without a PMU"),
            Claim(
                "No VM is accused in a quiet mix, with a PMU or without.",
                not (sights[PMU]["accused in quiet"] or sights[NO_PMU]["accused in quiet"]),
            ),
            *(
                Claim(f"{title}, no accusation in a mix with a culprit is false.", not _false(sights[sight]))
                for sight, title in ((PMU, "With a PMU"), (NO_PMU, "Without a PMU"))
            ),
        ],
        "The mixes are ours, and so is the law that finds the culprits. Real programs change more often than in phases "
        "of 8 to 30 seconds, and real counters are noisier. In the model nothing but cache and channel is shared: no "
        "core, no clock; how long a VM runs is known exactly, and no VM runs for longer because it is slowed, as one "
        "does that has requests to answer. Of a culprit that was there before the history began, insight says nothing. "
        "An agent has a "
        f"sample every {INTERVAL} s unless it is told otherwise, so its {IN_TIME} s have {IN_TIME // INTERVAL} samples."
        f" Within so many, {_within(sights[PMU])} culprits are named with a PMU, and {_within(sights[NO_PMU])} "
        "without. Mixes of this page that were missed have led to better laws, so these may suit them better than "
        f"others: of mixes for which no law was changed, by seeds from {_number(others['first_seed'])} on, "
        f"{_of(others[PMU]['named'], others[PMU]['planted'])} culprits are named with a PMU and "
        f"{_of(others[NO_PMU]['named'], others[NO_PMU]['planted'])} without; {_false(others[PMU])} and "
        f"{_false(others[NO_PMU])} of these mixes have a false accusation.",
    )


def _named(one: Mapping[str, int], share: float, title: str) -> Claim:
    return Claim(
        f"{title}, at least {100 * share:.0f} % of the culprits are named with the cause within {IN_TIME} s "
        f"({_of(one['named'], one['planted'])}).",
        one["named"] >= share * one["planted"],
    )


def _number(seed: int) -> str:
    return f"{seed:,}".replace(",", " ")


def _within(one: Mapping[str, Any]) -> str:
    """How many are named within as many samples as the usual interval has in the time."""
    return _of(sum(seconds <= IN_TIME // INTERVAL for seconds in one["seconds"]), one["planted"])


def _false(one: Mapping[str, int]) -> int:
    return one["false in planted"] + one["false in harmless"]


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / max(1, whole):.0f} %)"
