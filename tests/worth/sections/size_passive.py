# SPDX-License-Identifier: Apache-2.0
"""How many ways a VM needs, as its past tells it, beside the truth of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.worth.section import Bars, Claim, Section, Table
from tests.worth.sections.size import POINTS

Found = Mapping[str, Sequence[Mapping[str, Any]]]


def section(found: Found) -> Section:
    """See :func:`tests.worth.experiments.size_passive.run`."""
    every = [one for of in found.values() for one in of]
    said = _told(every)
    close = sum(one["worst"] <= POINTS for one in said)
    near = sum(abs(one["knee"] - one["true"]) <= 1 for one in said)
    beside = sum(_is_beside(one) for one in said)
    worst = {kind: 100 * max((one["worst"] for one in _told(of)), default=0.0) for kind, of in found.items()}
    return Section(
        "How many ways a VM needs, without a trial",
        "dCat (EuroSys 2018) and its like try out what ways are worth. That a VM's past tells it where neighbours "
        "press more and less has not been measured, as far as we know.",
        f"{len(every)} loads: those of `How many ways a VM needs`_, and walks through memory of 1 to 1.5 times the "
        "cache, which are the hardest case. A VM shares all 16 ways with a neighbour who streams through them, from "
        "next to nothing to all that memory gives, in eight steps of 14 seconds. ``vmqos size --passive`` draws the "
        "curve of what the VM missed while it held more and less, if it was seen to fill nearly all, and to miss even "
        "then. The truth is its stack distances. The *knee* is the fewest ways of those that are told that are nearly "
        "as good as all of these.",
        [
            Table(
                ("Load", "Told", "Curve wrong by at most", "Knee within a way", "Told from ... to 16 ways"),
                [
                    (
                        kind,
                        _of(len(told), len(of)),
                        f"{worst[kind]:.1f} points" if told else "-",
                        _of(sum(abs(one["knee"] - one["true"]) <= 1 for one in told), len(told)) if told else "-",
                        _range([one["ways"][0] for one in told]) if told else "-",
                    )
                    for kind, of in found.items()
                    for told in [_told(of)]
                ],
            )
        ],
        [
            Bars(
                "size-passive",
                "How far the told curves are from the truth where they are farthest",
                "points",
                [kind for kind, of in found.items() if _told(of)],
                {"told": [worst[kind] for kind, of in found.items() if _told(of)]},
                axis="load",
            )
        ],
        [
            Claim(
                f"What is told is within 5 points of the truth at every way ({_of(close, len(said))}).",
                close == len(said) > 0,
            ),
            Claim(
                f"The knee is within one way of the truth for nine of ten loads ({_of(near, len(said))}).",
                near >= 0.9 * len(said) > 0,
            ),
        ],
        f"Of {len(every) - len(said)} loads nothing is told: what they hold at most may be all that they want. The "
        "model's caches replace what was not used for longest, and count exactly who holds what; real ones do both "
        "only nearly. The neighbour's pressure spans all there is; where it hardly changes, less is told. Where the "
        "knee is further from the true one, numbers of ways between them were not seen: it is the true one, or the "
        f"told number beside that, for {_of(beside, len(said))}.",
    )


def _is_beside(one: Mapping[str, Any]) -> bool:
    """Whether the knee is the true one, or beside it among those that are told."""
    ways: list[int] = one["ways"]
    return abs(ways.index(one["knee"]) - ways.index(one["true"])) <= 1


def _told(of: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in of if "worst" in one]


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}"


def _range(numbers: Sequence[int]) -> str:
    return f"{min(numbers)}" if len({*numbers}) == 1 else f"{min(numbers)} to {max(numbers)}"
