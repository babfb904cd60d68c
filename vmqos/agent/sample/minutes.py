# SPDX-License-Identifier: Apache-2.0
"""The last day of every VM's readings: the least, the mean and the greatest value of each minute.

Like :mod:`vmqos.agent.sample.history` it is there to be shown, and it is no truth: nothing that the agent decides may
depend on it.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Self

from vmqos.agent.sample.history import PACKAGES, SERIES, Sample

MINUTE = 60
"""Seconds."""

DAY = 1440
"""Minutes that are remembered at most."""

STATISTICS = ("least", "mean", "greatest")

MOST_GONE = 100
"""How many VMs are remembered that are gone; the one that went first is forgotten first."""

MOST_VMS = 500
"""How many VMs are remembered in all. A host that runs more of them remembers nothing of those that came last."""


_DOZEN = 12
"""Samples of a VM that wait until they are looked at together."""


@dataclass(frozen=True, slots=True)
class Track:
    """One VM's minutes.

    :ivar rows: for each minute one row: each of the series' least values, then the means, then the greatest values;
        NaN where there was no number.
    :ivar missed: how many minutes have ended since the last one in which the VM was read; 0 for a VM that runs.
    """

    rows: array[float]
    missed: int = 0


@dataclass(frozen=True, slots=True)
class Minutes:
    """What is remembered.

    :ivar series: the names of the series, in the order in which they stand in a row.
    :ivar times: when each minute began, seconds since 1970, in the order in which they were. They ascend unless the
        clock was set back.
    :ivar vms: by UUID.
    """

    series: tuple[str, ...]
    times: array[int]
    vms: Mapping[str, Track]


@dataclass(slots=True)
class _Ring:
    """The memory of one VM; ``last`` is the number of minutes that had ended when the VM was last read."""

    rows: array[float]
    last: int


@dataclass(slots=True)
class _Running:
    """What one VM's readings have been in the minute that runs, series by series.

    :ivar waiting: the last samples, which are in none of the other figures yet: a dozen cost little more than one.
    """

    least: list[float]
    greatest: list[float]
    sums: list[float]
    counts: list[int]
    waiting: list[Sample] = field(default_factory=list)

    @classmethod
    def of(cls, series: int) -> Self:
        """Nothing yet, of so many series."""
        return cls([math.inf] * series, [-math.inf] * series, [0.0] * series, [0] * series)

    def widen(self, more: int) -> None:
        """Have so many series more."""
        self._take()
        self.least += [math.inf] * more
        self.greatest += [-math.inf] * more
        self.sums += [0.0] * more
        self.counts += [0] * more

    def add(self, sample: Sample) -> None:
        self.waiting.append(sample)
        if len(self.waiting) >= _DOZEN:
            self._take()

    def _take(self) -> None:
        # A sample may lack its last series.
        for at, column in enumerate(zip_longest(*self.waiting)):
            values = [value for value in column if value is not None]
            if values:
                self.least[at] = min(self.least[at], *values)
                self.greatest[at] = max(self.greatest[at], *values)
                self.sums[at] += sum(values)
                self.counts[at] += len(values)
        self.waiting.clear()

    def row(self) -> array[float]:
        self._take()
        has = [count > 0 for count in self.counts]
        means = [total / (count or 1) for total, count in zip(self.sums, self.counts, strict=True)]
        values = zip((*self.least, *means, *self.greatest), has * len(STATISTICS), strict=True)
        return array("f", [value if is_there else math.nan for value, is_there in values])


class MinuteHistory:
    """A ring of minutes for each VM; every method may be called from any thread.

    A minute ends with the first sample of another one, by the wall clock. A clock that is set back begins a minute that
    was there before: it is remembered once more, and the earlier one stays.

    :param capacity: how many minutes are remembered, 0 to :data:`DAY`. Each takes 12 bytes for each series of each VM.
    :param series: what a sample has.
    """

    def __init__(self, capacity: int, series: tuple[str, ...] = SERIES) -> None:
        self.capacity = capacity
        self._series = series
        self._width = len(series) * len(STATISTICS)
        self._lock = threading.Lock()
        self._count = 0
        self._times = array("q", [0]) * capacity
        self._rings: dict[str, _Ring] = {}
        self._minute: int | None = None
        self._running: dict[str, _Running] = {}

    @property
    def count(self) -> int:
        """How many minutes have ended so far."""
        return self._count

    def add(self, when: float, samples: Mapping[str, Sample]) -> None:
        """Remember what was read in one moment of all VMs there are.

        :param when: seconds since 1970.
        """
        if not self.capacity:
            return
        minute = math.floor(when / MINUTE) * MINUTE
        with self._lock:
            if self._minute is not None and minute != self._minute:
                self._end(self._minute)
            self._minute = minute
            for uuid, sample in samples.items():
                running = self._running.get(uuid)
                if running is None:
                    running = self._running[uuid] = _Running.of(len(self._series))
                running.add(sample)

    def widen(self, further: tuple[str, ...]) -> None:
        """Remember these series, too, behind the others. There is no value of them so far."""
        with self._lock:
            self._widen(further)

    def copy(self, since: float = -math.inf, uuids: Collection[str] | None = None) -> Minutes:
        """The first minute that began at ``since`` or later, and all minutes after it.

        :param uuids: the VMs that are asked for; all of them if ``None``.
        """
        with self._lock:
            return self._copy(since, uuids)

    def restore(self, earlier: Minutes) -> None:
        """Take over what was remembered before the agent started; it lies before all minutes that ended since then.

        What packages counted is taken over even if none of it has been read since: that comes with the first sweep.
        """
        with self._lock:
            self._widen(tuple(name for name in PACKAGES if name in earlier.series))
            now = self._copy(-math.inf, None)
            times = (earlier.times + now.times)[-self.capacity :]
            had, count = len(times) - len(now.times), len(times)
            nothing = array("f", [math.nan])
            for uuid in [*now.vms, *(earlier.vms.keys() - now.vms.keys())][:MOST_VMS]:
                before, after = earlier.vms.get(uuid), now.vms.get(uuid)
                rows = nothing * (self._width * had)
                if before is not None and had:
                    rows = _as_ours(self._series, earlier.series, before.rows)[-self._width * had :]
                rows += after.rows if after is not None else nothing * (self._width * len(now.times))
                last = count - after.missed if after is not None else had - before.missed if before is not None else 0
                self._rings[uuid] = _Ring(rows + nothing * (self._width * (self.capacity - count)), last)
            self._times = times + array("q", [0]) * (self.capacity - count)
            self._count = count

    def _widen(self, further: tuple[str, ...]) -> None:
        series = (*self._series, *(name for name in further if name not in self._series))
        for ring in self._rings.values():
            ring.rows = _as_ours(series, self._series, ring.rows)
        for running in self._running.values():
            running.widen(len(series) - len(self._series))
        self._series, self._width = series, len(series) * len(STATISTICS)

    def _copy(self, since: float, uuids: Collection[str] | None) -> Minutes:
        numbers = range(max(0, self._count - self.capacity), self._count)
        first = next((number for number in numbers if self._times[number % self.capacity] >= since), self._count)
        vms = {
            uuid: Track(self._from(ring.rows, first, self._width), self._count - ring.last)
            for uuid, ring in self._rings.items()
            if ring.last > first and (uuids is None or uuid in uuids)
        }
        return Minutes(self._series, self._from(self._times, first, 1), vms)

    def _from(self, ring: array, first: int, width: int) -> array:  # type: ignore[type-arg]
        """What a ring has of minute number ``first`` and those after it, the oldest first."""
        if first == self._count:
            return ring[:0]
        begin, end = width * (first % self.capacity), width * (self._count % self.capacity)
        return ring[begin:end] if begin < end else ring[begin:] + ring[:end]

    def _end(self, minute: int) -> None:
        """Put the minute that runs into the rings."""
        slot = self._count % self.capacity
        self._count += 1
        self._times[slot] = minute
        nothing = array("f", [math.nan]) * self._width
        for uuid in self._running.keys() - self._rings.keys():
            if len(self._rings) < MOST_VMS:
                self._rings[uuid] = _Ring(nothing * self.capacity, 0)
        for uuid, ring in self._rings.items():
            running = self._running.get(uuid)
            if running is not None:
                ring.last = self._count
            row = running.row() if running is not None else nothing
            ring.rows[self._width * slot : self._width * (slot + 1)] = row
        self._running.clear()
        self._forget()

    def _forget(self) -> None:
        """Forget the VMs of which no minute is left, and those that went first where too many are gone."""
        gone = sorted((ring.last, uuid) for uuid, ring in self._rings.items() if ring.last < self._count)
        for at, (last, uuid) in enumerate(gone):
            if last <= self._count - self.capacity or at < len(gone) - MOST_GONE:
                del self._rings[uuid]


def _as_ours(ours: tuple[str, ...], theirs: tuple[str, ...], rows: array[float]) -> array[float]:
    """Rows of an agent that may have had other series: a series that it did not have has no numbers."""
    if theirs == ours:
        return rows
    our_width, their_width = len(ours) * len(STATISTICS), len(theirs) * len(STATISTICS)
    found = array("f", [math.nan]) * (our_width * (len(rows) // their_width))
    for which in range(len(STATISTICS)):
        for at, name in enumerate(ours):
            if name in theirs:
                column = which * len(theirs) + theirs.index(name)
                found[which * len(ours) + at :: our_width] = rows[column::their_width]
    return found
