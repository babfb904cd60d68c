# SPDX-License-Identifier: Apache-2.0
"""The last minutes of every VM's readings."""

from __future__ import annotations

import math
import threading
from array import array
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, groupby
from typing import NamedTuple

SERIES = ("llc_occupancy", "total", "local", "remote")
"""Bytes, and bytes a second: what resctrl counts."""

EXECUTED = ("instructions_per_cycle", "instructions", "cache_misses", "counters_share")
"""What a VM's tasks execute, where the agent may count it: instructions and misses are a second. The last one is the
share of their time for which they had the processor's counters: below 1, the others are estimates."""

PACKAGES = ("core_watts", "uops_per_cycle", "llc_hit_stalls", "llc_miss_stalls")
"""What the processor's packages count of a VM, where they do: the power of the cores, and shares of the cycles. A VM
that did not run has no such shares."""

STATISTICS = ("least", "mean", "greatest")
"""What is remembered of each series in a minute."""

_BATCH = 60
"""Rows that columns are made of at a time, so that no second copy of all of them is in memory."""

Sample = tuple[float | None, ...]
"""One value, or none, for each of a history's series; of the last ones there may be no value at all."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What is remembered, as it was read.

    :ivar times: seconds since 1970, the oldest first.
    :ivar vms: by UUID, each series with one value, or NaN, for each time.
    """

    times: Sequence[float]
    vms: Mapping[str, Mapping[str, Sequence[float]]]


class _Vms:
    """The VMs of a row, in its order; samples of the same VMs share it.

    :ivar numbers: the place of each in the row.
    """

    __slots__ = ("numbers", "uuids")

    def __init__(self, uuids: tuple[str, ...]) -> None:
        self.uuids = uuids
        self.numbers = {uuid: number for number, uuid in enumerate(uuids)}


class _Row(NamedTuple):
    """What was read in one moment of all VMs; never changed.

    :ivar when: seconds since 1970.
    :ivar width: how many series there were.
    :ivar values: each VM's, one VM behind the other.
    """

    when: float
    vms: _Vms
    width: int
    values: array[float]


class History:
    """The last samples of each VM; a VM that is gone is forgotten at once.

    Samples come all the time, and few are looked at: so those of one moment are kept as one row, and columns are made
    of the rows when they are asked for.

    :param capacity: how many samples are kept, 0 or more. Each takes 4 bytes for each series of each VM: seven
        digits, as the minutes have.
    :param series: what a sample has.
    """

    def __init__(self, capacity: int, series: tuple[str, ...] = SERIES) -> None:
        self._lock = threading.Lock()
        self._series = series
        self._rows: deque[_Row] = deque(maxlen=capacity)
        self._count = 0
        self._vms = _Vms(())
        self._since: Mapping[str, int] = {}
        """The number of the first sample of each VM that is there, without a gap up to now."""

    def widen(self, further: tuple[str, ...]) -> None:
        """Remember these series, too, behind the others. There is no value of them so far."""
        with self._lock:
            self._series = (*self._series, *(name for name in further if name not in self._series))

    def add(self, when: float, samples: Mapping[str, Sample]) -> None:
        """Remember what was read in one moment of all VMs there are."""
        if not self._rows.maxlen:
            return
        with self._lock:
            uuids, width = tuple(samples), len(self._series)
            if uuids != self._vms.uuids:
                self._vms = _Vms(uuids)
                self._since = {uuid: self._since.get(uuid, self._count) for uuid in uuids}
            values = [math.nan if value is None else value for value in chain.from_iterable(samples.values())]
            if len(values) < width * len(uuids):
                # There is no value of the last series of some VM.
                wide = ((*sample, *(math.nan,) * (width - len(sample))) for sample in samples.values())
                values = [math.nan if value is None else value for value in chain.from_iterable(wide)]
            self._rows.append(_Row(when, self._vms, width, array("f", values)))
            self._count += 1

    def columns(
        self, when: float, uuids: Collection[str] | None = None, names: Collection[str] | None = None
    ) -> Columns:
        """What was read at ``when`` and later, of all VMs or these, in all series or these.

        The next look waits for nothing but a copy of the list of rows.
        """
        with self._lock:
            rows, begin, since = list(self._rows), self._count - len(self._rows), self._since
            series = [(at, name) for at, name in enumerate(self._series) if names is None or name in names]
        wanted = [uuid for uuid in since if uuids is None or uuid in uuids]
        vms = {uuid: {name: array("f") for _, name in series} for uuid in wanted}
        for batch in _batches(rows):
            _append(vms, series, batch)
        for uuid, columns in vms.items():
            if (before := since[uuid] - begin) > 0:
                for column in columns.values():
                    column[:before] = array("f", [math.nan]) * before
        # The clock may have been set back, so these need not be the last ones.
        chosen = [row.when >= when for row in rows]
        times = array("d", [row.when for row in rows])
        if all(chosen):
            return Columns(times, vms)
        return Columns(
            _chosen(times, chosen),
            {uuid: {name: _chosen(column, chosen) for name, column in of_vm.items()} for uuid, of_vm in vms.items()},
        )


def _batches(rows: Sequence[_Row]) -> Iterator[Sequence[_Row]]:
    """Rows in a row that have the same VMs and series: :data:`_BATCH` at most."""
    for _, alike in groupby(rows, lambda row: (id(row.vms), row.width)):
        found = list(alike)
        for begin in range(0, len(found), _BATCH):
            yield found[begin : begin + _BATCH]


def _append(
    vms: Mapping[str, Mapping[str, array[float]]], series: Sequence[tuple[int, str]], batch: Sequence[_Row]
) -> None:
    """Append what a batch has to the columns of each VM, and NaN where it has nothing."""
    first, table, nothing = batch[0], array("f"), array("f", [math.nan]) * len(batch)
    table.frombytes(b"".join([row.values for row in batch]))
    numbers, width, stride = first.vms.numbers, first.width, len(first.values)
    for uuid, columns in vms.items():
        number = numbers.get(uuid)
        for at, name in series:
            columns[name].extend(nothing if number is None or at >= width else table[number * width + at :: stride])


def _chosen(column: array[float], chosen: Sequence[bool]) -> array[float]:
    return array(column.typecode, compress(column, chosen))


def executed_of(rates: Sequence[float], share: float | None) -> Sample:
    """A value, or none, for each of :data:`EXECUTED`.

    :param rates: what a VM's tasks do a second, by :data:`vmqos.telemetry.hardware_events.NAMES`.
    :param share: of the time for which they ran, the share in which they were counted, 0 to 1; ``None``: they did not.
    """
    cycles, instructions, _, misses = rates
    return instructions / cycles if cycles else None, instructions, misses, share
