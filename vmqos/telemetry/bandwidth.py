# SPDX-License-Identifier: Apache-2.0
"""Bandwidth, and other rates: how fast the counters grew between two sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import sub, truediv

from vmqos.telemetry.model import MBM_LOCAL, MBM_TOTAL, Columns, Missing, Reading, Snapshot, VmReading
from vmqos.telemetry.sweep.lazy import LazyMapping

UNSEEN = 5.0
"""Seconds between two sweeps up to which no VM can have lost its hardware counters and got others unseen: the turns
that the agent has VMs take are as long (``[telemetry] counter_turn``)."""


@dataclass(frozen=True, slots=True)
class Rates:
    """A VM's memory bandwidth between two sweeps, and what packages counted meanwhile.

    :ivar total: bytes a second to and from memory anywhere.
    :ivar local: the part to and from memory of the same socket.
    :ivar remote: the rest: ``total - local``, 0 or more.
    :ivar seconds: the time between the two readings of the first cache; 0 where there is no earlier one.
    :ivar packages: how much the packages' counters grew a second, all packages together, by event.
    """

    total: Reading
    local: Reading
    remote: Reading
    seconds: float
    packages: Mapping[str, Reading] = field(default_factory=dict)


def rates(before: Snapshot, after: Snapshot, unseen: float = UNSEEN) -> Mapping[str, Rates]:
    """The bandwidth of every VM of ``after``, by UUID; pure.

    The rate of a VM is the sum of its rates on each cache, taken between the moments in which its counters there were
    read, by the monotonic clock. It is never taken between two generations. Nor is it where VMs take turns to have
    hardware counters, and another VM may have had this one's for a part of the time.

    :param unseen: seconds between the sweeps up to which no such part can have passed unseen.
    """
    found = {uuid: rate(before.vms.get(uuid), vm) for uuid, vm in after.vms.items()}
    if after.monotonic - before.monotonic <= unseen:
        return found
    if not any(rate.total.missing is Missing.UNASSIGNED for rate in found.values()):
        return found
    return {uuid: _without_traffic(rate) for uuid, rate in found.items()}


def _without_traffic(found: Rates) -> Rates:
    total, local, remote = (
        reading if reading.value is None else Reading.none(Missing.UNASSIGNED)
        for reading in (found.total, found.local, found.remote)
    )
    return replace(found, total=total, local=local, remote=remote)


class RateColumns(LazyMapping[str, Rates]):
    """What :func:`rates` tells of all VMs, each of which has numbers: as columns, at a small part of the cost.

    What it tells of one VM is made when the caller looks at it.

    :param uuids: the VMs, in the order of the columns.
    :param total: of each VM, as in :class:`Rates`; so are the others.
    """

    __slots__ = ("local", "remote", "seconds", "total", "uuids")

    def __init__(
        self,
        uuids: Sequence[str],
        *,
        total: Sequence[float],
        local: Sequence[float],
        remote: Sequence[float],
        seconds: Sequence[float],
    ) -> None:
        super().__init__({uuid: number for number, uuid in enumerate(uuids)}, self._rates)
        self.uuids, self.total, self.local, self.remote, self.seconds = uuids, total, local, remote, seconds

    def _rates(self, uuid: str, number: int) -> Rates:
        total, local, remote = Reading(self.total[number]), Reading(self.local[number]), Reading(self.remote[number])
        return Rates(total, local, remote, self.seconds[number])


def rate_columns(before: Columns | None, after: Columns | None) -> RateColumns | None:
    """The bandwidth of every VM of ``after``; pure. ``None`` where :func:`rates` has to look at each VM."""
    if before is None or after is None or before.groups is not after.groups or not after.caches:
        return None
    totals, locals_, intervals = [], [], []
    for cache, (_, total, local, moments) in after.caches.items():
        _, total_before, local_before, moments_before = before.caches[cache]
        seconds = list(map(sub, moments, moments_before))
        if min(seconds, default=1.0) <= 0:
            return None
        grown = [list(map(truediv, map(sub, *of), seconds)) for of in ((total, total_before), (local, local_before))]
        if min(map(partial(min, default=0.0), grown)) < 0:
            return None
        totals.append(grown[0])
        locals_.append(grown[1])
        intervals.append(seconds)
    total, local = (list(map(sum, zip(*of, strict=True))) for of in (totals, locals_))
    remote = [max(0.0, one) for one in map(sub, total, local)]
    # A VM's readings are as old as that of the first cache.
    return RateColumns(after.uuids, total=total, local=local, remote=remote, seconds=intervals[0])


def rate(before: VmReading | None, after: VmReading) -> Rates:
    """The bandwidth of one VM; ``before`` is its earlier reading, if there is one."""
    if before is None or before.generation != after.generation or after.read_at <= before.read_at:
        seconds = 0.0
        grown = {event: _unknown(after.totals[event]) for event in (MBM_TOTAL, MBM_LOCAL)}
        packages = {event: _unknown(after.totals[event]) for event in _events_of_packages(after)}
    else:
        seconds = after.read_at - before.read_at
        grown = {event: _grown(before, after, event) for event in (MBM_TOTAL, MBM_LOCAL)}
        packages = {event: _grown_in_packages(before, after, event, seconds) for event in _events_of_packages(after)}
    total, local = grown[MBM_TOTAL], grown[MBM_LOCAL]
    return Rates(total, local, _remote(total, local), seconds, packages)


def _unknown(now: Reading) -> Reading:
    return now if now.value is None else Reading.none(Missing.NO_PREVIOUS)


def _grown(before: VmReading, after: VmReading, event: str) -> Reading:
    """The growth of each cache's counter a second: one that began anew can't hide behind another one that grew."""
    if after.totals[event].value is None:
        return after.totals[event]
    grown = 0.0
    for cache, readings in after.caches.items():
        now = readings[event].value
        then = before.caches.get(cache, {}).get(event)
        if now is None or then is None or then.value is None:
            return Reading.none(Missing.NO_PREVIOUS)
        if now < then.value:
            return Reading.none(Missing.WENT_BACK)
        grown += (now - then.value) / (_moment(after, cache) - _moment(before, cache))
    return Reading(grown)


def _events_of_packages(vm: VmReading) -> frozenset[str]:
    return frozenset(event for events in vm.packages.values() for event in events)


def _grown_in_packages(before: VmReading, after: VmReading, event: str, seconds: float) -> Reading:
    """The growth of each package's counter a second. The package brings them up to date every few milliseconds."""
    if after.totals[event].value is None:
        return after.totals[event]
    grown = 0.0
    for package, readings in after.packages.items():
        now = _counted(readings.get(event))
        then = _counted(before.packages.get(package, {}).get(event))
        if now is None or then is None:
            return Reading.none(Missing.NO_PREVIOUS)
        if now < then:
            return Reading.none(Missing.WENT_BACK)
        grown += now - then
    return Reading(grown / seconds)


def _counted(reading: Reading | None) -> float | None:
    """What a package has counted. Until it has heard of a group, that is nothing."""
    if reading is None:
        return None
    return 0 if reading.missing is Missing.UNAVAILABLE else reading.value


def _moment(vm: VmReading, cache: int) -> float:
    return vm.moments.get(cache, vm.read_at)


def _remote(total: Reading, local: Reading) -> Reading:
    """The two counters of a cache are read one after the other, so local may seem to be the greater one."""
    if total.value is None:
        return total
    if local.value is None:
        return local
    return Reading(max(0.0, total.value - local.value))
