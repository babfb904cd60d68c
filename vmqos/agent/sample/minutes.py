# SPDX-License-Identifier: Apache-2.0
"""The last day of every VM's readings: the least, the mean and the greatest value of each minute.

Like :mod:`vmqos.agent.sample.history` it is there to be shown, and it is no truth: nothing that the agent decides may
depend on it.
"""

from __future__ import annotations

import logging
import math
import threading
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from typing import Self

from vmqos.agent.sample.history import PACKAGES, SERIES, STATISTICS, Sample
from vmqos.agent.sample.piece import HOUR, Piece, pack, unpack, width
from vmqos.daemon.log_once import LogOnce

LOG = logging.getLogger(__name__)

MINUTE = 60
"""Seconds."""

DAY = 1440
"""Minutes that are remembered at most."""

MOST_GONE = 100
"""How many VMs are remembered that are gone; the one that went first is forgotten first."""

MOST_VMS = 500
"""How many VMs are remembered in all. A host that runs more of them remembers nothing of those that came last."""


_DOZEN = 12
"""Samples that wait until they are looked at together."""


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


@dataclass(frozen=True, slots=True)
class PackedTrack:
    """One VM's minutes as they are kept, from the first one in which it was read to the last one.

    :ivar pieces: the oldest minutes, the oldest piece first.
    :ivar rows: the minutes after these, as in :class:`Track`.
    :ivar missed: as in :class:`Track`.
    """

    pieces: Sequence[Piece]
    rows: array[float]
    missed: int = 0


@dataclass(frozen=True, slots=True)
class PackedMinutes:
    """What is remembered, as it is kept.

    :ivar series: as in :class:`Minutes`; pieces may have others.
    :ivar times: as in :class:`Minutes`.
    :ivar vms: by UUID.
    """

    series: tuple[str, ...]
    times: array[int]
    vms: Mapping[str, PackedTrack]


@dataclass(slots=True)
class _Past:
    """What is remembered of one VM, without a gap.

    :ivar pieces: the oldest minutes, the oldest piece first.
    :ivar rows: the minutes after these: those of the last hour, and up to an hour more.
    :ivar last: how many minutes had ended when the VM was last read; ``rows`` ends there.
    :ivar next: how many minutes the next piece will have.
    """

    pieces: list[Piece]
    rows: array[float]
    last: int
    next: int


@dataclass(slots=True)
class _Running:
    """What one VM's readings have been in the minute that runs, series by series."""

    least: list[float]
    greatest: list[float]
    sums: list[float]
    counts: list[int]

    @classmethod
    def of(cls, series: int) -> Self:
        """Nothing yet, of so many series."""
        return cls([math.inf] * series, [-math.inf] * series, [0.0] * series, [0] * series)

    def widen(self, more: int) -> None:
        """Have so many series more."""
        self.least += [math.inf] * more
        self.greatest += [-math.inf] * more
        self.sums += [0.0] * more
        self.counts += [0] * more

    def add(self, samples: Iterable[Sample]) -> None:
        # A sample may lack its last series.
        for at, column in enumerate(zip_longest(*samples)):
            values = [value for value in column if value is not None]
            if values:
                self.least[at] = min(self.least[at], *values)
                self.greatest[at] = max(self.greatest[at], *values)
                self.sums[at] += sum(values)
                self.counts[at] += len(values)

    def row(self) -> array[float]:
        has = [count > 0 for count in self.counts]
        means = [total / (count or 1) for total, count in zip(self.sums, self.counts, strict=True)]
        values = zip((*self.least, *means, *self.greatest), has * len(STATISTICS), strict=True)
        return array("f", [value if is_there else math.nan for value, is_there in values])


class MinuteHistory:
    """The last minutes of each VM; every method may be called from any thread.

    A minute ends with the first sample of another one, by the wall clock. A clock that is set back begins a minute that
    was there before: it is remembered once more, and the earlier one stays.

    What is older than an hour is packed (:mod:`vmqos.agent.sample.piece`), and unpacked when a client asks for it. Once
    it is written to a file (:mod:`vmqos.agent.sample.minutes_file`), it is read from there.

    :param capacity: how many minutes are remembered, 0 to :data:`DAY`. Each of the last 60 to 120 takes 12 bytes for
        each series of each VM. Each earlier one that is in no file takes 6 where all numbers are noise, and next to
        nothing where none changes.
    :param series: what a sample has.
    """

    def __init__(self, capacity: int, series: tuple[str, ...] = SERIES) -> None:
        self.capacity = capacity
        self._series = series
        self._lock = threading.Lock()
        self._count = 0
        self._times = array("q")
        self._pasts: dict[str, _Past] = {}
        self._minute: int | None = None
        self._running: dict[str, _Running] = {}
        self._waiting: list[Mapping[str, Sample]] = []
        """The last samples, which are in none of the figures yet: a dozen cost little more than one."""
        self._once = LogOnce(LOG)

    @property
    def count(self) -> int:
        """How many minutes have ended so far, with those that were taken over."""
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
            self._waiting.append(samples)
            if len(self._waiting) >= _DOZEN:
                self._take_waiting()

    def _take_waiting(self) -> None:
        """Have the last samples in the figures of the minute that runs."""
        for uuid in dict.fromkeys(chain.from_iterable(self._waiting)):
            running = self._running.get(uuid)
            if running is None:
                running = self._running[uuid] = _Running.of(len(self._series))
            running.add([samples[uuid] for samples in self._waiting if uuid in samples])
        self._waiting.clear()

    def widen(self, further: tuple[str, ...]) -> None:
        """Remember these series, too, behind the others. There is no value of them so far."""
        with self._lock:
            self._widen(further)

    def copy(self, since: float = -math.inf, uuids: Collection[str] | None = None) -> Minutes:
        """The first minute that began at ``since`` or later, and all minutes after it, with nothing packed.

        A day of one VM takes some milliseconds of CPU, and the file is read, both while the lock is not held.

        :param uuids: the VMs that are asked for; all of them if ``None``.
        :raises TimeoutError: if the disk that has the file does not answer.
        """
        with self._lock:
            series, count = self._series, self._count
            begin = count - len(self._times)
            first = next((number for number in range(begin, count) if self._times[number - begin] >= since), count)
            times = self._times[first - begin :]
            found = {
                uuid: (past.last, past.rows[:], past.pieces[:])
                for uuid, past in self._pasts.items()
                if past.last > first and (uuids is None or uuid in uuids)
            }
        vms = {
            uuid: Track(_rows(series, last, rows, pieces, first, count, partial(self._unpacked, uuid)), count - last)
            for uuid, (last, rows, pieces) in found.items()
        }
        return Minutes(series, times, vms)

    def _unpacked(self, uuid: str, piece: Piece) -> array[float]:
        """The rows of a piece; one that is damaged has no numbers."""
        try:
            return unpack(piece)
        except TimeoutError:
            raise
        except (OSError, ValueError) as error:
            text = "minutes of VM %s are missing, for their file ([telemetry] minutes_file) is damaged: %s"
            self._once.log(logging.WARNING, uuid, text, uuid, error)
            return _nothing(piece.series, piece.minutes)

    def packed(self) -> PackedMinutes:
        """All that is remembered."""
        with self._lock:
            vms = {
                uuid: PackedTrack(past.pieces[:], past.rows[:], self._count - past.last)
                for uuid, past in self._pasts.items()
            }
            return PackedMinutes(self._series, self._times[:], vms)

    def restore(self, earlier: PackedMinutes) -> None:
        """Take over what was remembered before the agent started; it lies before all minutes that ended since then.

        What packages counted is taken over even if none of it has been read since: that comes with the first sweep.
        """
        vms = {uuid: _packed(earlier.series, track) for uuid, track in earlier.vms.items()}
        with self._lock:
            self._widen(tuple(name for name in PACKAGES if name in earlier.series))
            before = len(earlier.times)
            self._count += before
            self._times = (earlier.times + self._times)[-self.capacity :]
            for past in self._pasts.values():
                past.last += before
            for uuid, track in vms.items():
                rows = _as_ours(self._series, earlier.series, track.rows)
                # Of VMs that were packed before, not all are due at once any more.
                following = HOUR if earlier.vms[uuid].pieces else self._piece_of_next()
                self._lay_before(uuid, _Past(list(track.pieces), rows, before - track.missed, following))

    def _lay_before(self, uuid: str, earlier: _Past) -> None:
        """Remember of a VM what an agent before this one did."""
        past = self._pasts.get(uuid)
        if past is None:
            if len(self._pasts) < MOST_VMS:
                self._pasts[uuid] = earlier
            return
        had = sum(piece.minutes for piece in past.pieces) + len(past.rows) // width(self._series)
        rows = earlier.rows + _nothing(self._series, past.last - had - earlier.last)
        if past.pieces:
            between = [pack(self._series, rows)] if rows else []
            past.pieces = [*earlier.pieces, *between, *past.pieces]
        else:
            past.pieces, past.rows = earlier.pieces, rows + past.rows

    def _widen(self, further: tuple[str, ...]) -> None:
        series = (*self._series, *(name for name in further if name not in self._series))
        self._take_waiting()
        for past in self._pasts.values():
            past.rows = _as_ours(series, self._series, past.rows)
        for running in self._running.values():
            running.widen(len(series) - len(self._series))
        self._series = series

    def _piece_of_next(self) -> int:
        """Minutes of the first piece of a VM that comes now.

        Some VMs have fewer than others, so that not all of them are packed in the same minute of each hour.
        """
        return HOUR - len(self._pasts) % HOUR

    def _end(self, minute: int) -> None:
        """Remember the minute that runs."""
        self._take_waiting()
        self._count += 1
        self._times.append(minute)
        del self._times[: -self.capacity]
        for uuid, running in self._running.items():
            past = self._pasts.get(uuid)
            if past is None:
                if len(self._pasts) >= MOST_VMS:
                    continue
                past = self._pasts[uuid] = _Past([], array("f"), self._count - 1, self._piece_of_next())
            past.rows += _nothing(self._series, self._count - 1 - past.last)
            past.rows += running.row()
            past.last = self._count
            self._pack(past)
        self._running.clear()
        self._forget()

    def _pack(self, past: _Past) -> None:
        """Pack what is older than an hour, once it is enough for a piece."""
        wide = width(self._series)
        while len(past.rows) >= (HOUR + past.next) * wide:
            past.pieces.append(pack(self._series, past.rows[: past.next * wide]))
            past.rows = past.rows[past.next * wide :]
            past.next = HOUR

    def _forget(self) -> None:
        """Forget what is too old, and the VMs that went first where too many are gone."""
        oldest = self._count - self.capacity
        gone = sorted((past.last, uuid) for uuid, past in self._pasts.items() if past.last < self._count)
        for at, (last, uuid) in enumerate(gone):
            if last <= oldest or at < len(gone) - MOST_GONE:
                del self._pasts[uuid]
        for past in self._pasts.values():
            begin = past.last - len(past.rows) // width(self._series) - sum(piece.minutes for piece in past.pieces)
            while past.pieces and begin + past.pieces[0].minutes <= oldest:
                begin += past.pieces.pop(0).minutes


def _rows(
    series: tuple[str, ...],
    last: int,
    rows: array[float],
    pieces: Sequence[Piece],
    first: int,
    count: int,
    unpacked: Callable[[Piece], array[float]],
) -> array[float]:
    """One VM's rows of the minutes from number ``first`` up to ``count``.

    :param last: how many minutes had ended with the last one of ``rows``.
    :param pieces: the minutes before ``rows``.
    :param unpacked: the rows of a piece.
    """
    wide = width(series)
    begin, parts = last - len(rows) // wide, [rows]
    for piece in reversed(pieces):
        if begin <= first:
            break
        parts.append(_as_ours(series, piece.series, unpacked(piece)))
        begin -= piece.minutes
    found = _nothing(series, begin - first)
    for part in reversed(parts):
        found += part
    del found[: (first - begin) * wide if first > begin else 0]
    return found + _nothing(series, count - last)


def _packed(series: tuple[str, ...], track: PackedTrack) -> PackedTrack:
    """A VM's track as it is kept.

    A track of a file of the first format has no pieces. Of such a track, this packs all but the last hour.
    """
    if track.pieces:
        return track
    row, old, pieces = width(series), len(track.rows) - HOUR * width(series), []
    for begin in range(0, old, HOUR * row):
        pieces.append(pack(series, track.rows[begin : min(begin + HOUR * row, old)]))
    return PackedTrack(pieces, track.rows[max(old, 0) :], track.missed)


def _nothing(series: tuple[str, ...], minutes: int) -> array[float]:
    """Rows of so many minutes in which nothing was read; none if it is less than 0."""
    return array("f", [math.nan]) * (minutes * width(series))


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
