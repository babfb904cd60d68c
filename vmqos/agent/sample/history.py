# SPDX-License-Identifier: Apache-2.0
"""The last minutes of every VM's readings, in memory that is taken once and no more."""

from __future__ import annotations

import math
import struct
import threading
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

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


class History:
    """A ring of samples for each VM; a VM that is gone is forgotten at once.

    :param capacity: how many samples are kept, 0 or more. Each takes 4 bytes for each series of each VM: seven
        digits, as the minutes have.
    :param series: what a sample has.
    """

    def __init__(self, capacity: int, series: tuple[str, ...] = SERIES) -> None:
        self._lock = threading.Lock()
        self._capacity = capacity
        self._series = series
        self._times = array("d", [math.nan]) * capacity
        self._vms: dict[str, array[float]] = {}
        self._count = 0

    def widen(self, further: tuple[str, ...]) -> None:
        """Remember these series, too, behind the others. There is no value of them so far."""
        with self._lock:
            before = len(self._series)
            self._series = (*self._series, *(name for name in further if name not in self._series))
            width = len(self._series)
            for uuid, narrow in self._vms.items() if width > before else ():
                wide = self._vms[uuid] = array("f", [math.nan]) * (width * self._capacity)
                for at in range(before):
                    wide[at::width] = narrow[at::before]

    def add(self, when: float, samples: Mapping[str, Sample]) -> None:
        """Remember what was read in one moment of all VMs there are."""
        if not self._capacity:
            return
        with self._lock:
            width = len(self._series)
            slot = self._count % self._capacity
            self._count += 1
            self._times[slot] = when
            for gone in self._vms.keys() - samples.keys():
                del self._vms[gone]
            pack, at = struct.Struct(f"{width}f").pack_into, 4 * width * slot
            for uuid, sample in samples.items():
                ring = self._vms.get(uuid)
                if ring is None:
                    ring = self._vms[uuid] = array("f", [math.nan]) * (width * self._capacity)
                try:
                    pack(ring, at, *sample)
                except struct.error:
                    # There is no value of some series.
                    values = [math.nan if value is None else value for value in sample]
                    pack(ring, at, *values, *[math.nan] * (width - len(values)))

    def columns(
        self, when: float, uuids: Collection[str] | None = None, names: Collection[str] | None = None
    ) -> Columns:
        """What was read at ``when`` and later, of all VMs or these, in all series or these.

        Only copying is done while the next look has to wait.
        """
        with self._lock:
            width = len(self._series)
            times = self._in_order(self._times)
            wanted = [(at, name) for at, name in enumerate(self._series) if names is None or name in names]
            columns = {
                uuid: {name: self._in_order(ring[at::width]) for at, name in wanted}
                for uuid, ring in self._vms.items()
                if uuids is None or uuid in uuids
            }
        # The clock may have been set back, so these need not be the last ones.
        chosen = [time >= when for time in times]
        pick: Callable[[array[float]], array[float]] = (
            (lambda column: column) if all(chosen) else lambda column: array(column.typecode, compress(column, chosen))
        )
        vms = {uuid: {name: pick(column) for name, column in of_vm.items()} for uuid, of_vm in columns.items()}
        return Columns(pick(times), vms)

    def _in_order(self, column: array[float]) -> array[float]:
        """The slots that are in use, the oldest first."""
        if self._count <= self._capacity:
            return column[: self._count]
        oldest = self._count % self._capacity
        return column[oldest:] + column[:oldest]


def executed_of(rates: Sequence[float], share: float | None) -> Sample:
    """A value, or none, for each of :data:`EXECUTED`.

    :param rates: what a VM's tasks do a second, by :data:`vmqos.telemetry.hardware_events.NAMES`.
    :param share: of the time for which they ran, the share in which they were counted, 0 to 1; ``None``: they did not.
    """
    cycles, instructions, _, misses = rates
    return instructions / cycles if cycles else None, instructions, misses, share
