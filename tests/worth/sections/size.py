# SPDX-License-Identifier: Apache-2.0
"""How many ways a VM needs: what insight says, beside the truth of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.worth.section import Bars, Claim, Section, Table

POINTS = 0.05
"""Of the references: how far a curve may be from the truth."""
PMU, NO_PMU = "pmu", "no pmu"

Found = Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]


def section(found: Found) -> Section:
    """See :func:`tests.worth.experiments.size.run`."""
    number = sum(len(of[PMU]) for of in found.values())
    within = {sight: _count(found, sight, _is_near) for sight in (PMU, NO_PMU)}
    close = _count(found, PMU, lambda one: one["worst"] <= POINTS)
    cheap = _count(found, PMU, lambda one: one["cost"] < 0.01)
    worst = {kind: [100 * max(one["worst"] for one in of[PMU])] for kind, of in found.items()}
    return Section(
        "How many ways a VM needs",
        "Mattson (1970) has the misses of all sizes of a cache from one run, if each access is seen. A host sees "
        "counters only. dCat (EuroSys 2018) and its like move ways up and down and watch what changes.",
        f"{number} loads of {len(found)} kinds, drawn by seeds that no law was tuned to. They need no guest: "
        "generated accesses go through the same model of the caches, scaled as in the section before. A VM has 2 "
        "of 16 ways; it is let have one more after the other, up to 14, while a neighbour streams through the "
        "other two. The truth is its stack distances, counted by the model meanwhile. The *knee* is the fewest "
        "ways with which it misses at most 5 of 100 references more than with 14; without a PMU, traffic with "
        "memory stands for misses. The *cost* is by how much less the VM did meanwhile than in a run in which "
        "nobody asks.",
        [
            Table(
                ("Load", "Curve wrong by at most", "Knee within a way", "the same without a PMU", "Samples"),
                [
                    (
                        kind,
                        f"{worst[kind][0]:.1f} points",
                        _of(sum(map(_is_near, of[PMU])), len(of[PMU])),
                        _of(sum(map(_is_near, of[NO_PMU])), len(of[NO_PMU])),
                        _range([int(one["seconds"]) for one in of[PMU]]),
                    )
                    for kind, of in found.items()
                ],
            )
        ],
        [
            Bars(
                "size",
                "How far the curves are from the truth where they are farthest",
                "points",
                list(worst),
                {"with a PMU": [values[0] for values in worst.values()]},
                axis="load",
            )
        ],
        [
            Claim(
                f"With a PMU, the curve is within 5 points of the truth at every way ({_of(close, number)}).",
                close == number,
            ),
            _knees(within[PMU], number, "With a PMU"),
            _knees(within[NO_PMU], number, "Without a PMU"),
            Claim(f"Being asked costs a VM less than 1 % of what it does ({_of(cheap, number)}).", cheap == number),
        ],
        "The model's caches replace what was not used for longest; real ones do so only nearly. The loads are "
        "ours, and do the same all the time, or take turns within a second. What the ways that a VM is tried with "
        "are worth to those who had them is not counted.",
    )


def _knees(within: int, number: int, title: str) -> Claim:
    return Claim(
        f"{title}, the knee is within one way of the truth for nine of ten loads ({_of(within, number)}).",
        within >= 0.9 * number,
    )


def _count(found: Found, sight: str, is_so: Any) -> int:
    return sum(bool(is_so(one)) for of in found.values() for one in of[sight])


def _is_near(one: Mapping[str, float]) -> bool:
    return abs(one["knee"] - one["true"]) <= 1


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}"


def _range(numbers: Sequence[int]) -> str:
    return f"{min(numbers)} to {max(numbers)}"
