# SPDX-License-Identifier: Apache-2.0
"""The newest looks at counters and hardware events as columns, for a client that asks again and again.

The page is one. Most of what is told of a VM stays the same from one look to the next, and so do the names of its
numbers. A client that says what it knows is told the numbers alone, which is a tenth of the text.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from vmqos.agent.sample.hardware_counts import HardwareCounts, Look, VmCounts
from vmqos.agent.sample.sampler import Telemetry
from vmqos.agent.serve import counters, hardware_report, health_report
from vmqos.local_api import contract
from vmqos.resctrl.exceptions import ResctrlError
from vmqos.telemetry import RateColumns, Snapshot
from vmqos.telemetry.hardware_events import NAMES

_STAYING = ("group", "generation", "policy", "ways", "allocated_bytes", "missing")
"""What stays the same of a VM's counters. Of a VM in the columns there is no more to tell but its numbers."""

_Staying = Mapping[str, contract.VmTelemetry]
"""What :meth:`vmqos.agent.serve.counters.Counters.same` told."""

_NOTHING: _Staying = {}


class Columns:
    """Tells the newest looks; may be called from any thread.

    :param telemetry: the host's counters.
    :param told: tells them VM by VM.
    :param hardware: what the VMs' tasks execute; ``None`` where that is not counted.
    """

    def __init__(self, telemetry: Telemetry, told: counters.Counters, hardware: HardwareCounts | None) -> None:
        self._telemetry = telemetry
        self._told = told
        self._hardware = hardware
        self._epoch = uuid.uuid4().hex[:8]
        self._lock = threading.Lock()
        self._count = 0
        self._known: tuple[_Staying, tuple[str, ...]] = _NOTHING, ()

    def told(self, basis: str) -> contract.Columns:
        """The newest looks.

        :param basis: what an earlier answer named so; empty without one.
        """
        answer: contract.Columns = {"basis": ""}
        staying: _Staying = _NOTHING
        try:
            answer["counters"], staying = self._counters()
        except ResctrlError as error:
            answer["error"] = str(error)
        counted: Mapping[str, VmCounts] = {}
        if self._hardware is not None:
            look = self._hardware.newest()
            counted = {uuid: vm for uuid, vm in look.vms.items() if isinstance(vm, VmCounts) and vm.rates is not None}
            answer["hardware_events"] = self._executed(look, counted, self._hardware.interval)
        answer["basis"] = self._name(staying, tuple(counted))
        if answer["basis"] != basis:
            of_vms = {uuid: {name: vm[name] for name in _STAYING} for uuid, vm in staying.items()}  # type: ignore[literal-required]
            answer["same"] = {
                "counters": cast(dict[str, contract.SameCounters], of_vms),
                "hardware_events": tuple(counted),
            }
        return answer

    def _name(self, staying: _Staying, counted: tuple[str, ...]) -> str:
        """What names all that stays the same: another name whenever something of it has changed."""
        with self._lock:
            before, counted_before = self._known
            if not self._count or staying is not before or counted != counted_before:
                self._count += 1
                self._known = staying, counted
            return f"{self._epoch}.{self._count}"

    def _counters(self) -> tuple[contract.CounterColumns, _Staying]:
        """The newest regular look, and what stays the same of the VMs in its columns."""
        snapshot, found = self._telemetry.sampled()
        about, interval = {"age_seconds": health_report.age(snapshot.monotonic)}, self._telemetry.interval
        last = counters.measured(self._telemetry.measured(), time.monotonic())
        staying = self._told.same(snapshot) if isinstance(found, RateColumns) and not last else None
        if staying is None:
            told = cast(dict[str, Any], self._told.telemetry(snapshot, found, interval, last))
            apart = told.pop("vms")
            return cast(contract.CounterColumns, {**told, **about, "columns": _NO_COLUMNS, "apart": apart}), _NOTHING
        told = {**counters.about(snapshot, interval), **about}
        told["columns"], told["apart"] = _of_counters(snapshot, cast(RateColumns, found)), {}
        return cast(contract.CounterColumns, told), staying

    def _executed(self, look: Look, counted: Mapping[str, VmCounts], interval: float) -> contract.HardwareEventColumns:
        rest = {uuid: vm for uuid, vm in look.vms.items() if uuid not in counted}
        told = cast(dict[str, Any], hardware_report.of_look(replace(look, vms=rest), interval, self._telemetry))
        apart = told.pop("vms")
        return cast(contract.HardwareEventColumns, {**told, "columns": _of_counts(counted), "apart": apart})


_NO_COLUMNS: contract.VmColumns = {"held": {}, "total": (), "local": (), "remote": ()}


def _of_counters(snapshot: Snapshot, found: RateColumns) -> contract.VmColumns:
    """The numbers of all VMs; a fraction of a byte means nothing."""
    assert snapshot.columns is not None
    return {
        "held": {str(cache): of_cache[0] for cache, of_cache in snapshot.columns.caches.items()},
        "total": _whole(found.total),
        "local": _whole(found.local),
        "remote": _whole(found.remote),
    }


def _of_counts(counted: Mapping[str, VmCounts]) -> dict[str, Sequence[float | None]]:
    """The numbers of the VMs that are counted."""
    every = zip(*(vm.rates or () for vm in counted.values()), strict=True)
    columns = dict(zip(NAMES, map(_whole, every), strict=bool(counted)))
    return {**columns, "share": [vm.share for vm in counted.values()]}


def _whole(column: Sequence[float]) -> list[int]:
    return list(map(round, column))
