# SPDX-License-Identifier: Apache-2.0
"""A history as columns, one value for each time; and where a column steps up.

A value that was not measured is NaN, so that a column has as many values as there are times. Whoever takes a median
leaves these out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from vmqos.insight.model import History, Sample

LEVEL = 4
"""Samples that make a level: what a column was before a step, and what it is behind it. Shorter peaks are no step."""
STEP = 1.5
"""A column steps where the level behind is this many times the level before."""


@dataclass(frozen=True, slots=True)
class Series:
    """One VM's columns.

    :ivar bandwidth: bytes a second; 0 before the VM was there.
    :ivar cycles: for an instruction.
    :ivar references: for an instruction: the mark by which one phase of a program is told from another, for no
        neighbour changes it.
    :ivar misses: for an instruction.
    """

    held: Mapping[int, Sequence[float]]
    bandwidth: Sequence[float]
    cycles: Sequence[float]
    references: Sequence[float]
    misses: Sequence[float]

    def held_on(self, caches: Iterable[int]) -> list[float]:
        """Bytes held on some caches together."""
        columns = [self.held[cache] for cache in caches if cache in self.held]
        return [sum(values) for values in zip(*columns, strict=True)] if columns else [0.0] * len(self.bandwidth)


@dataclass(frozen=True, slots=True)
class Rise:
    """A step up.

    :ivar at: the index of the first value behind it.
    :ivar end: the first index at which the column is down again, or its length.
    :ivar before: the level before the step, ``after`` the one behind it.
    """

    at: int
    end: int
    before: float
    after: float


def align(history: History) -> tuple[list[float], dict[str, Series]]:
    """The times, and the columns by VM; those without samples are left out.

    The history is asked for each VM's samples once, and they are not kept: it may make them when it is asked.
    """
    found = {}
    for vm, samples in history.items():
        if samples:
            own = sorted({sample.time for sample in samples})
            found[vm] = samples[0].time, own, series_of(own, samples)
    times = sorted({time for _, own, _ in found.values() for time in own})
    return times, {vm: _spread(of, own, times, first) for vm, (first, own, of) in found.items()}


def series_of(times: Sequence[float], samples: Sequence[Sample]) -> Series:
    """One VM's columns.

    :param times: those of the samples.
    """
    at = {sample.time: sample for sample in samples}
    rows = [at[time] for time in times]
    caches = sorted({cache for sample in samples for cache in sample.occupancy})
    return Series(
        {cache: [row.occupancy.get(cache, math.nan) for row in rows] for cache in caches},
        [math.nan if row.bandwidth is None else row.bandwidth for row in rows],
        *([_for_an_instruction(row, name) for row in rows] for name in ("cycles", "references", "misses")),
    )


def _spread(series: Series, own: Sequence[float], times: Sequence[float], first: float) -> Series:
    """Columns with a value for each of all VMs' times.

    :param own: the times that the columns have.
    :param first: when the VM came: it held and moved nothing before.
    """
    if len(own) == len(times):
        return series
    at = {time: number for number, time in enumerate(own)}
    places = [at.get(time) for time in times]

    def spread(values: Sequence[float], before: float) -> list[float]:
        return [
            values[place] if place is not None else math.nan if time >= first else before
            for place, time in zip(places, times, strict=True)
        ]

    return Series(
        {cache: spread(values, 0.0) for cache, values in series.held.items()},
        spread(series.bandwidth, 0.0),
        *(spread(values, math.nan) for values in (series.cycles, series.references, series.misses)),
    )


def _for_an_instruction(row: Sample, name: str) -> float:
    """How many there were for each instruction; NaN where that was not counted."""
    counts = row.counts
    # No instruction takes no cycle: where none was counted, the counter did not run.
    if counts is None or counts.instructions <= 0 or not counts.cycles / counts.instructions > 0:
        return math.nan
    value: float = getattr(counts, name) / counts.instructions
    return value


def middle(values: Iterable[float]) -> float:
    """The median of the values that are known; NaN where none is."""
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else math.nan


def rises(column: Sequence[float]) -> list[Rise]:
    """Where a column steps up, and stays up for :data:`LEVEL` values; of steps nearer than that, the greatest."""
    found: list[Rise] = []
    for at in range(1, len(column) - LEVEL + 1):
        earlier, later = column[max(0, at - LEVEL) : at], column[at : at + LEVEL]
        # Most are none, and a median takes long. Where a NaN comes first, nothing is said here.
        if column[at - 1] >= column[at] or max(later) <= STEP * min(earlier):
            continue
        before, after = middle(earlier), middle(later)
        half = (before + after) / 2
        # A NaN compares as false.
        if not (after > STEP * before and column[at - 1] < half <= column[at]):
            continue
        low = next((i for i in range(at + 1, len(column)) if max(column[i : i + 2]) < half), len(column))
        if low < at + LEVEL:
            continue
        if found and at < found[-1].at + LEVEL:
            if after - before <= found[-1].after - found[-1].before:
                continue
            found.pop()
        found.append(Rise(at, low, before, after))
    return found
