# SPDX-License-Identifier: Apache-2.0
"""How many ways VMs without ways of their own need: what ``vmqos size`` says, beside the truth of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from statistics import fmean
from typing import Any

from tests.worth.section import Bars, Claim, Section, Table
from tests.worth.sections.size import POINTS
from vmqos.cli.size import leaving
from vmqos.insight import size as law

Found = Mapping[str, Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]]


def section(found: Found) -> Section:
    """See :func:`tests.worth.experiments.leaving.run`."""
    found = {
        place: {
            neighbour: {kind: [{**one, **told(one)} for one in of] for kind, of in by_kind.items()}
            for neighbour, by_kind in by_neighbour.items()
        }
        for place, by_neighbour in found.items()
    }
    every = list(_all(found))
    said = [one for one in every if one["knee"] is not None]
    kinds = list(dict.fromkeys(kind for by in found.values() for of in by.values() for kind in of))
    neighbours = list(dict.fromkeys(neighbour for by in found.values() for neighbour in by))
    by_kind = {kind: list(_all(found, kind=kind)) for kind in kinds}
    wrong = {how: sum(one[how] > POINTS for one in every) for how in ("at once", "late")}
    close = sum(one["worst"] <= POINTS for one in said)
    knees = sum(abs(one["knee"] - one["true knee"]) <= 1 for one in said)
    return Section(
        "How many ways a VM needs that has none of its own",
        "A mask says where a class may bring lines in, and not where it may find them (Intel SDM, volume 3, 17.19). "
        "What that does to a VM that leaves ways has not been told, as far as we know.",
        f"{len(every)} VMs: {len(kinds)} kinds of loads, drawn by seeds, beside a neighbour that streams, streams a "
        "little, or walks through memory as large as the cache. The VM fills all 16 ways before, or four as in a "
        "class; then it has one, or four, for itself, and one more after the other, up to 12. The truth is what the "
        "same VM misses that has had so many ways from the beginning. It is watched *at once*, *late*, which is after "
        "45 samples, or by the law of ``vmqos size``: what it left is counted, and numbers of ways with which that is "
        "more than 3 % of what fits in them do not count. *Left* is the part of what it held before that it still "
        "has in other ways after 45 samples; in a *turn* the neighbour brings in as much as the ways hold that it "
        "may fill.",
        [
            Table(
                ("Load", "Wrong by at most, at once", "late", "by the law", "Told", "Knee within a way"),
                [(kind, *_wrong(of), _said(of), _near(of)) for kind, of in by_kind.items()],
            ),
            Table(
                ("Neighbour", "Turns in 45 samples", "Left then", "Wrong by more than 5 points then", "Told"),
                [
                    (
                        neighbour,
                        f"{fmean(one['turns'] for one in of):.1f}",
                        f"{100 * fmean(one['left'] for one in of):.0f} %",
                        _of(sum(one["late"] > POINTS for one in of), len(of)),
                        _said(of),
                    )
                    for neighbour in neighbours
                    for of in [list(_all(found, neighbour=neighbour))]
                ],
            ),
        ],
        [
            Bars(
                "leaving",
                "How far the curves are from the truth where they are farthest",
                "points",
                kinds,
                {
                    "at once": [_most(of, "at once") for of in by_kind.values()],
                    "late": [_most(of, "late") for of in by_kind.values()],
                    "by the law": [_most(of, "worst") for of in by_kind.values()],
                },
                axis="load",
            )
        ],
        [
            Claim(
                "Waiting does not help: after 45 samples more than half of the curves that are wrong at once are wrong "
                f"still ({_of(wrong['late'], len(every))} by more than 5 points, {wrong['at once']} at once).",
                wrong["late"] > wrong["at once"] / 2 > 0,
            ),
            Claim(
                f"Numbers of ways that count are within 5 points of the truth ({_of(close, len(said))}).",
                close == len(said) > 0,
            ),
            Claim(
                f"The knee is within one way of the truth for nine of ten loads ({_of(knees, len(said))}).",
                knees >= 0.9 * len(said) > 0,
            ),
        ],
        f"Of {len(every) - len(said)} VMs nothing is told, for they live on what they left with all numbers of ways. "
        "The model's caches replace what was not used for longest; where real ones take other lines, what is left may "
        "go. It counts exactly who holds what; resctrl does so nearly.",
    )


def told(one: Mapping[str, Any]) -> dict[str, Any]:
    """What the command tells: nothing, or the numbers of ways that count, and their knee."""
    columns = (map(float, one[name].split()) for name in ("missed", "true", "still"))
    rows = zip(count(one["first"]), *columns, strict=False)
    counted = {ways: (missed, true) for ways, missed, true, still in rows if leaving.counts(still, 1.0)}
    if len(counted) < 2 and not any(missed <= law.ENOUGH for missed, _ in counted.values()):
        return {"worst": None, "knee": None, "true knee": None}
    curve = law.size([law.Point(ways, missed, 0.0, 1.0, 1.0, 0.0) for ways, (missed, _) in counted.items()]).curve
    return {
        "worst": max(abs(curve[ways] - true) for ways, (_, true) in counted.items()),
        "knee": law.knee(curve),
        "true knee": law.knee({ways: true for ways, (_, true) in counted.items()}),
    }


def _all(found: Found, *, kind: str = "", neighbour: str = "") -> Iterator[Mapping[str, Any]]:
    for by_neighbour in found.values():
        for one, by_kind in by_neighbour.items():
            for other, of in by_kind.items():
                if neighbour in ("", one) and kind in ("", other):
                    yield from of


def _most(of: Sequence[Mapping[str, Any]], how: str) -> float:
    return 100 * max((one[how] for one in of if one[how] is not None), default=0.0)


def _wrong(of: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from (f"{_most(of, how):.1f} points" for how in ("at once", "late", "worst"))


def _said(of: Sequence[Mapping[str, Any]]) -> str:
    return _of(sum(one["knee"] is not None for one in of), len(of))


def _near(of: Sequence[Mapping[str, Any]]) -> str:
    said = [one for one in of if one["knee"] is not None]
    return _of(sum(abs(one["knee"] - one["true knee"]) <= 1 for one in said), len(said))


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}"
