# SPDX-License-Identifier: Apache-2.0
"""Counters as the JSON values that the API answers with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Any, TypeVar, cast

import msgspec

from vmqos.agent.sample.history import PACKAGES, STATISTICS, Columns
from vmqos.agent.sample.minutes import MINUTE, Minutes
from vmqos.agent.sample.sampler import Measured
from vmqos.group_names import Owner, owner_of
from vmqos.local_api import contract
from vmqos.telemetry import (
    EVENTS,
    GroupReading,
    HostReading,
    Missing,
    RateColumns,
    Rates,
    Reading,
    Snapshot,
    VmReading,
    rate,
)
from vmqos.telemetry.model import LLC_OCCUPANCY, MBM_LOCAL, MBM_TOTAL

T = TypeVar("T")

_DIGITS = dict.fromkeys(("instructions_per_cycle", "counters_share", *PACKAGES), 3)
"""Digits after the point. The other series are whole numbers, which are shorter in JSON: a fraction of a byte means
nothing."""


class Counters:
    """Tells looks at all counters; what stays the same from one sweep to the next is made once."""

    def __init__(self) -> None:
        self._known: tuple[object, Mapping[str, contract.VmTelemetry] | None] = None, None

    def telemetry(
        self,
        snapshot: Snapshot,
        found: Mapping[str, Rates] | None,
        interval: float,
        measured: Mapping[str, contract.Measured] = MappingProxyType({}),
    ) -> contract.Telemetry:
        """One look at all counters; may be called from any thread.

        :param found: the bandwidths since an earlier look, by UUID; ``None`` where there is no earlier one.
        :param measured: the last bandwidths of VMs that wait for hardware counters, by UUID.
        """
        vms = None if measured else self._of_columns(snapshot, found)
        if vms is None:
            vms = {
                uuid: _vm(vm, rate(None, vm) if found is None else found[uuid], measured.get(uuid))
                for uuid, vm in snapshot.vms.items()
            }
        return cast(contract.Telemetry, {**about(snapshot, interval), "vms": vms})

    def same(self, snapshot: Snapshot) -> Mapping[str, contract.VmTelemetry] | None:
        """What is told of the VMs until there are other groups, and the very same object until then.

        Each VM's own numbers are in the columns of the look; ``None`` where these do not say all that is told.
        """
        columns = snapshot.columns
        if columns is None or not columns.caches:
            return None
        groups, same = self._known
        if groups is not columns.groups:
            same = _same_in_all_sweeps(snapshot.vms)
            self._known = columns.groups, same
        return same

    def _of_columns(
        self, snapshot: Snapshot, found: Mapping[str, Rates] | None
    ) -> dict[str, contract.VmTelemetry] | None:
        """The VMs by what columns say; ``None`` where these do not say all that is told."""
        if not (found is None or isinstance(found, RateColumns)):
            return None
        columns, same = snapshot.columns, self.same(snapshot)
        if columns is None or same is None:
            return None
        counts = {str(cache): of_cache[: len(EVENTS)] for cache, of_cache in columns.caches.items()}
        totals = [map(sum, zip(*of_event, strict=True)) for of_event in zip(*counts.values(), strict=True)]
        rates: Iterable[contract.Counts] = repeat({"total": None, "local": None, "remote": None}, len(columns.uuids))
        if found is not None:
            columns_of_rates = zip(found.total, found.local, found.remote, strict=True)
            rates = ({"total": total, "local": local, "remote": remote} for total, local, remote in columns_of_rates)
        by_cache = zip(*map(_rows, counts.values()), strict=True)
        missing = {} if found is not None else dict.fromkeys(("total", "local", "remote"), Missing.NO_PREVIOUS.value)
        return {
            uuid: {
                **same[uuid],
                "caches": dict(zip(counts, caches, strict=True)),
                "totals": of_all,
                "rates": of_vm,
                "rates_missing": missing,
            }
            for uuid, caches, of_all, of_vm in zip(columns.uuids, by_cache, _rows(totals), rates, strict=True)
        }


def about(snapshot: Snapshot, interval: float) -> dict[str, Any]:
    """What is told of one look beside the VMs."""
    return {
        "taken_at": snapshot.wall,
        "interval": interval,
        "sweep_seconds": snapshot.sweep_seconds,
        "host": _host(snapshot.host),
    }


def _same_in_all_sweeps(vms: Mapping[str, VmReading]) -> Mapping[str, contract.VmTelemetry] | None:
    """What is told of VMs until there are other groups; ``None`` where they have numbers that are in no column."""
    if any(vm.nodes or vm.packages or tuple(vm.totals) != EVENTS for vm in vms.values()):
        return None
    return {uuid: _vm(vm, rate(None, vm), None) for uuid, vm in vms.items()}


def _rows(columns: Sequence[Iterable[float]]) -> Iterator[contract.Counts]:
    """One row of each VM, of columns in the order of :data:`vmqos.telemetry.model.EVENTS`."""
    rows = zip(*columns, strict=True)
    return ({LLC_OCCUPANCY: held, MBM_TOTAL: total, MBM_LOCAL: local} for held, total, local in rows)


def history(past: Columns, interval: float) -> contract.History:
    """What is remembered."""
    vms = {
        uuid: _as_json({name: _rounded(column, _DIGITS.get(name)) for name, column in of_vm.items()})
        for uuid, of_vm in past.vms.items()
    }
    return {"interval": interval, "times": list(past.times), "vms": vms}


def _rounded(column: Sequence[float], digits: int | None) -> list[float | None]:
    return [None if math.isnan(number) else round(number, digits) for number in column]


def _as_json(told: T) -> T:
    """What msgspec encodes as this value. The lists of all VMs take some times the memory of their JSON."""
    return cast(T, msgspec.Raw(msgspec.json.encode(told)))


def minutes(past: Minutes) -> contract.HistoryOfMinutes:
    """What is remembered of each minute."""
    width = len(past.series) * len(STATISTICS)

    def of(rows: Sequence[float], at: int) -> contract.Minutes:
        least, mean, greatest = (
            [shown(number) for number in rows[which * len(past.series) + at :: width]]
            for which in range(len(STATISTICS))
        )
        return {"least": least, "mean": mean, "greatest": greatest}

    vms = {
        uuid: _as_json({name: of(track.rows, at) for at, name in enumerate(past.series)})
        for uuid, track in past.vms.items()
    }
    return {"resolution": MINUTE, "times": list(past.times), "vms": vms}


def shown(number: float) -> float | None:
    """What is told of a number that is remembered; ``None`` where it is no finite one."""
    if not math.isfinite(number):
        return None
    # The numbers are remembered with seven digits.
    return round(number) if abs(number) >= 1000 else round(number, 3)


def measured(last: Mapping[str, Measured], now: float) -> Mapping[str, contract.Measured]:
    """The last bandwidths of VMs that wait for hardware counters.

    :param now: by the monotonic clock.
    """
    return {uuid: {"rates": _rates(one.rates), "age_seconds": now - one.at} for uuid, one in last.items()}


def _rates(found: Rates) -> contract.Counts:
    return _values({"total": found.total, "local": found.local, "remote": found.remote})


def _vm(vm: VmReading, found: Rates, last: contract.Measured | None) -> contract.VmTelemetry:
    told: contract.VmTelemetry = {
        "group": vm.group,
        "generation": vm.generation,
        "policy": vm.policy,
        "ways": {str(cache): ways for cache, ways in vm.ways.items()},
        "allocated_bytes": vm.allocated_bytes,
        "caches": _by_place(vm.caches),
        "nodes": {str(cache): _by_place(nodes) for cache, nodes in vm.nodes.items()},
        "packages": _by_place(vm.packages),
        "package_rates": _values(found.packages),
        "packages_since": vm.since,
        "totals": _values(vm.totals),
        "missing": {event: missing.value for event, (_, missing) in vm.totals.items() if missing},
        "rates": _rates(found),
        "rates_missing": {
            name: reading.missing.value
            for name, reading in (("total", found.total), ("local", found.local), ("remote", found.remote))
            if reading.missing
        },
    }
    if last is not None:
        told["measured"] = last
    return told


def _host(host: HostReading) -> contract.HostTelemetry:
    return {
        "caches": _by_place(host.caches),
        "packages": _by_place(host.packages),
        "totals": _values(host.totals),
        "groups": {name: _group(name, group) for name, group in host.groups.items()},
        "ways": {str(cache): ways for cache, ways in host.ways.items()},
        "cache_bytes": {str(cache): size for cache, size in host.cache_bytes.items()},
        "closids": host.closids,
        "closids_used": host.closids_used,
        "rmids": host.rmids,
        "rmids_used": host.rmids_used,
        "events": list(host.events),
    }


def _group(name: str, group: GroupReading) -> contract.GroupTelemetry:
    owner = owner_of(name)
    return {
        "owner": "default" if owner is Owner.DEFAULT else "class" if owner is Owner.CLASS else "foreign",
        "generation": group.generation,
        "caches": _by_place(group.caches),
        "packages": _by_place(group.packages),
    }


def _by_place(readings: Mapping[int, Mapping[str, Reading]]) -> dict[str, contract.Counts]:
    return {str(place): _values(by_event) for place, by_event in readings.items()}


def _values(readings: Mapping[str, Reading]) -> contract.Counts:
    return {name: value for name, (value, _) in readings.items()}
