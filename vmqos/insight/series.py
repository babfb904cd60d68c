# SPDX-License-Identifier: Apache-2.0
"""A history as columns, one value for each time; and where a column steps up.

A value that was not measured is NaN, so that a column has as many values as there are times. Whoever takes a median
leaves these out.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from statistics import median

from vmqos.insight.model import History, Sample

LEVEL = 4
"""Samples that make a level: what a column was before a step, and what it is behind it. Shorter peaks are no step."""
STEP = 1.5
"""A column steps where the level behind is this many times the level before."""


@dataclass(frozen=True, slots=True)
class Series:
    """One VM's columns; as arrays where there are many VMs, in which a number takes a quarter of a list's memory.

    :ivar bandwidth: bytes a second; 0 before the VM was there.
    :ivar cycles: for an instruction.
    :ivar references: for an instruction: the mark by which one phase of a program is told from another, for no
        neighbour changes it much.
    :ivar misses: for an instruction.
    :ivar cpu_time: CPU seconds that its tasks ran, a second.
    :ivar begins: the index of the first sample at which the VM was there.
    """

    held: Mapping[int, Sequence[float]]
    bandwidth: Sequence[float]
    cycles: Sequence[float]
    references: Sequence[float]
    misses: Sequence[float]
    cpu_time: Sequence[float]
    begins: int = 0

    def held_on(self, caches: Iterable[int]) -> list[float]:
        """Bytes held on some caches together."""
        columns = [self.held[cache] for cache in caches if cache in self.held]
        if not columns:
            return [0.0] * len(self.bandwidth)
        together: Iterable[float] = columns[0]
        for column in columns[1:]:
            together = map(add, together, column)
        return list(together)


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
    """The times, and the columns by VM; those without samples are left out."""
    times = sorted({sample.time for samples in history.values() for sample in samples})
    return times, {vm: series_of(times, samples) for vm, samples in history.items() if samples}


def of_columns(
    held: Mapping[int, Sequence[float]],
    bandwidth: Sequence[float],
    counts: Sequence[Sequence[float]] = (),
    cpu_time: Sequence[float] | None = None,
) -> Series | None:
    """One VM's columns, of what was read as columns; ``None`` where nothing was read.

    What was not measured is NaN. Before the first value of any kind, the VM was not there.

    :param counts: in the order of :class:`vmqos.insight.model.Counts`; empty where nothing is counted.
    :param cpu_time: CPU seconds a second; ``None`` where they are not known.
    """
    every = [*held.values(), bandwidth, *counts]
    first = next((at for at, row in enumerate(zip(*every, strict=True)) if any(value == value for value in row)), None)
    if first is None:
        return None
    unknown = array("d", [math.nan]) * len(bandwidth)
    cycles, references, misses = unknown, unknown, unknown
    if counts and any(counts[1]):
        clock, instructions, referred, missed = counts
        # A NaN compares as false. Where no cycle was counted, the counter did not run.
        ran = [count / of if of > 0 and count > 0 else math.nan for count, of in zip(clock, instructions, strict=True)]
        cycles = array("d", [value if value > 0 else math.nan for value in ran])
        references, misses = (
            array(
                "d",
                [
                    count / of if value > 0 else math.nan
                    for count, of, value in zip(column, instructions, ran, strict=True)
                ],
            )
            for column in (referred, missed)
        )

    def after_nothing(column: Sequence[float]) -> Sequence[float]:
        return column if first == 0 else array("d", [*[0.0] * first, *column[first:]])

    return Series(
        {cache: after_nothing(column) for cache, column in sorted(held.items())},
        after_nothing(bandwidth),
        cycles,
        references,
        misses,
        unknown if cpu_time is None else cpu_time,
        first,
    )


def series_of(times: Sequence[float], samples: Sequence[Sample]) -> Series:
    """One VM's columns, with a value for each of the times."""
    at = {sample.time: sample for sample in samples}
    first = samples[0].time if samples else math.inf
    rows = [at.get(time) for time in times]
    caches = sorted({cache for sample in samples for cache in sample.occupancy})
    cycles, references, misses = (
        [_for_an_instruction(row, name) for row in rows] for name in ("cycles", "references", "misses")
    )
    return Series(
        {
            cache: [
                math.nan
                if row is None and time >= first
                else 0.0
                if row is None
                else row.occupancy.get(cache, math.nan)
                for time, row in zip(times, rows, strict=True)
            ]
            for cache in caches
        },
        [
            (0.0 if time < first else math.nan) if row is None else math.nan if row.bandwidth is None else row.bandwidth
            for time, row in zip(times, rows, strict=True)
        ],
        cycles,
        references,
        misses,
        [math.nan if row is None or row.cpu_time is None else row.cpu_time for row in rows],
        bisect_left(times, first),
    )


def _for_an_instruction(row: Sample | None, name: str) -> float:
    """How many there were for each instruction; NaN where that was not counted."""
    counts = None if row is None else row.counts
    # No instruction takes no cycle: where none was counted, the counter did not run.
    if counts is None or counts.instructions <= 0 or not counts.cycles / counts.instructions > 0:
        return math.nan
    value: float = getattr(counts, name) / counts.instructions
    return value


def measured(column: Sequence[float]) -> Sequence[float]:
    """The values that are known."""
    # Only a NaN differs from itself, and the sum of a column that has one is one.
    total = sum(column)
    return column if total == total else [value for value in column if value == value]


def middle(values: Iterable[float]) -> float:
    """The median of the values that are known; NaN where none is."""
    # Only a NaN differs from itself; this is asked of every value.
    known = [value for value in values if value == value]
    return median(known) if known else math.nan


def rises(column: Sequence[float]) -> list[Rise]:
    """Where a column steps up, and stays up for :data:`LEVEL` values; of steps nearer than that, the greatest."""
    # Most columns have no step at all, and to look for one takes long.
    known = measured(column)
    if not known or max(known) <= STEP * min(known):
        return []
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
