# SPDX-License-Identifier: Apache-2.0
"""Whether a VM fared better while its neighbour was held back: what a trial shows.

*The experiment.*  The neighbour's memory bandwidth is limited for some seconds, or it fills few ways of the cache,
which no other VM fills then. The VM is measured before, during and after. If it fares better during the trial than
before, and worse again after, the neighbour slows it: nothing else begins and ends at these two moments.

*What must be so:*

1. The neighbour moved less, or with few ways it held less. Else it was not held back, and nothing can be said.
2. The VM did the same work all the time, by its references per instruction, which a neighbour hardly changes.
3. The figure is better by :data:`LEAST` against before *and* against after. This difference is greater than chance
   makes it: than :data:`SURE` times the standard error of the means.

It is *not confirmed* if the samples agree so well that a difference of :data:`LEAST` would have been seen. All else is
*unclear*: too few samples, too much noise, another work.

*The figure* is cycles per instruction where these are counted. *Without a PMU* speed is not seen. A victim of the cache
then has to hold more and to fetch less; a victim of the memory's bandwidth has to get more. Where nothing is said of
the cause, either will do, and a neighbour is acquitted only if the VM shows neither. A VM that rests during just these
seconds holds more and fetches less, too, so this says less.

*What can't be known*: harm that the trial does not end, for the neighbour may do as much harm with what is left to it
(with few ways it takes no less of the memory's bandwidth); and whether a change at both moments was chance.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from vmqos.insight import say
from vmqos.insight.model import Cause, Sample
from vmqos.insight.neighbours import SAME_WORK
from vmqos.insight.series import Series, middle, series_of

FEWEST = 3
"""Samples of each phase without which nothing is said."""
LEAST = 1.05
"""The least factor that counts as better."""
SURE = 3.0
"""Standard errors that a difference has to have."""
EXCLUDES = 2.0
"""Standard errors that a difference has to be away from :data:`LEAST`, to be called none."""
STEADIEST = 0.005
"""The standard error of a figure is no less than this part of it: a few samples may be alike by chance."""
HELD_BACK = 0.75
"""A neighbour that is held back moves, or holds, this part at most of what it did before."""

PHASES = ("before", "during", "after")


class Verdict(enum.StrEnum):
    """What a trial shows."""

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not-confirmed"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Phase:
    """What was measured in one of :data:`PHASES`.

    :ivar victim: the samples of the VM that is slowed; ``culprit``: those of its neighbour.
    """

    victim: Sequence[Sample]
    culprit: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the VM in each phase: the medians; NaN where it was not measured."""

    name: str
    before: float
    during: float
    after: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trial.

    :ivar reason: why that is said: a clause.
    :ivar faster: by which factor the deciding figure was better; NaN where it can't be said.
    """

    verdict: Verdict
    reason: str
    faster: float
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class _Difference:
    """By which factor a figure was better during the trial, as logarithms.

    :ivar beside: against before, and against after.
    :ivar error: the standard error.
    """

    beside: tuple[float, float]
    error: float

    @property
    def verdict(self) -> Verdict:
        least = math.log(LEAST)
        if min(self.beside) >= max(least, SURE * self.error):
            return Verdict.CONFIRMED
        if max(self.beside) + EXCLUDES * self.error < least:
            return Verdict.NOT_CONFIRMED
        return Verdict.UNCLEAR


_COLUMNS: Mapping[str, Callable[[Series], Sequence[float]]] = {
    "cycles_per_instruction": lambda series: series.cycles,
    "misses_per_instruction": lambda series: series.misses,
    "traffic": lambda series: series.bandwidth,
    "held": lambda series: series.held_on(series.held),
}
"""The figures, and their columns: a number each, bytes a second, and bytes."""


def judge(before: Phase, during: Phase, after: Phase, cause: Cause | None, *, confined: bool = False) -> Outcome:
    """What a trial shows.

    :param cause: by what the neighbour is said to slow the VM; ``None`` where nothing is said.
    :param confined: whether the neighbour had few ways during the trial; else its bandwidth was limited.
    """
    phases = (before, during, after)
    columns = [_columns(phase.victim) for phase in phases]
    # The last one says whether the neighbour was held back.
    shown = ("traffic", "held") if confined else ("traffic",)
    figures = (
        *(Figure(name, *(middle(one[name]) for one in columns)) for name in _COLUMNS),
        *(Figure(f"{name}_of_culprit", *(middle(_columns(phase.culprit)[name]) for phase in phases)) for name in shown),
    )

    def unclear(reason: str) -> Outcome:
        return Outcome(Verdict.UNCLEAR, reason, math.nan, figures)

    is_counted = all(_known(one["cycles_per_instruction"]) for one in columns)
    # Which way is better: 1 for more, -1 for less. All figures of a way to suffer have to be better.
    of_cache, of_bandwidth = {"traffic": -1, "held": 1}, {"traffic": 1}
    if is_counted:
        ways_to_suffer = [{"cycles_per_instruction": -1}]
    elif cause is Cause.BANDWIDTH:
        ways_to_suffer = [of_bandwidth]
    else:
        ways_to_suffer = [of_cache] if cause is Cause.CACHE else [of_cache, of_bandwidth]
    deciding = ways_to_suffer[0]
    if missing := [name for name, one in zip(PHASES, columns, strict=True) if not all(map(_known_of(one), deciding))]:
        return unclear(f"there are too few samples {' and '.join(missing)}")
    has = figures[-1]
    is_known = not (math.isnan(has.before) or math.isnan(has.during))
    means, show, had = ("few ways", say.size, "held") if confined else ("the limit", say.bandwidth, "moved")
    if is_known and has.during > HELD_BACK * has.before:
        told = f"{show(has.before)} before and {show(has.during)} during the trial"
        return unclear(f"{means} did not hold the neighbour back, which {had} {told}")
    if is_counted and (other := _other_work(phases)):
        return unclear(other)
    differences = [
        [_difference([one[name] for one in columns], sign) for name, sign in way.items()] for way in ways_to_suffer
    ]
    # That by which the VM is better, if it is by any of them.
    found = max(differences, key=_faster)
    faster = math.exp(_faster(found))
    told = _told(figures, deciding)
    if {one.verdict for one in found} == {Verdict.CONFIRMED}:
        return Outcome(Verdict.CONFIRMED, told, faster, figures)
    if {one.verdict for way in differences for one in way} == {Verdict.NOT_CONFIRMED}:
        if is_known:
            return Outcome(Verdict.NOT_CONFIRMED, told, faster, figures)
        return unclear(f"{told}; whether {means} held the neighbour back was not measured")
    return unclear(f"{told}, which is too noisy to tell")


def _columns(samples: Sequence[Sample]) -> dict[str, Sequence[float]]:
    series = series_of([sample.time for sample in samples], samples)
    return {name: column(series) for name, column in _COLUMNS.items()}


def _known(values: Sequence[float]) -> bool:
    """Whether a figure was measured often enough."""
    return len(_logarithms(values)) >= FEWEST


def _known_of(columns: Mapping[str, Sequence[float]]) -> Callable[[str], bool]:
    return lambda name: _known(columns[name])


def _logarithms(values: Sequence[float]) -> list[float]:
    """Of the values that are known and above nothing: a factor is a difference of these."""
    return [math.log(value) for value in values if value > 0 and math.isfinite(value)]


def _difference(columns: Sequence[Sequence[float]], sign: int) -> _Difference:
    before, during, after = map(_logarithms, columns)
    beside = tuple(sign * (fmean(during) - fmean(other)) for other in (before, after))
    errors = [variance(one) / len(one) for one in (before, during, after)]
    error = math.sqrt(errors[1] + max(errors[0], errors[2]))
    return _Difference((beside[0], beside[1]), max(error, STEADIEST))


def _faster(found: Sequence[_Difference]) -> float:
    """By which factor the figure that gained least was better, as a logarithm."""
    return min(min(one.beside) for one in found)


def _other_work(phases: Sequence[Phase]) -> str:
    marks = [middle(series_of([s.time for s in one.victim], one.victim).references) for one in phases]
    if not max(marks) <= (1 + 2 * SAME_WORK) * min(marks):
        told = ", ".join(f"{1000 * mark:.1f} {name}" for mark, name in zip(marks, PHASES, strict=True))
        return f"the VM did other work meanwhile: its references to the cache in 1 000 instructions were {told}"
    return ""


_LABELS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "cycles_per_instruction": ("cycles for an instruction", lambda value: f"{value:.2f}"),
    "traffic": ("traffic with memory", say.bandwidth),
    "held": ("held of the cache", say.size),
}


def _told(figures: Sequence[Figure], deciding: Mapping[str, int]) -> str:
    parts = []
    for figure in figures:
        if figure.name in deciding:
            label, text = _LABELS[figure.name]
            values = [f"{text(getattr(figure, phase))} {phase}" for phase in PHASES]
            parts.append(f"{label}: {values[0]}, {values[1]} and {values[2]} the trial")
    return "; ".join(parts)
