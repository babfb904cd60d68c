# SPDX-License-Identifier: Apache-2.0
"""Readings and snapshots made of plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vmqos.resctrl.monitoring import Value
from vmqos.telemetry import HostReading, Missing, Reading, Snapshot, VmReading
from vmqos.telemetry.model import EVENTS, total

HOST = HostReading({}, {}, {}, {0: 11}, {0: 9}, {0: 11 << 20}, 16, 2, 192, 3, EVENTS)


def vm(
    *caches: Sequence[Value], uuid: str = "u", read_at: float = 10.0, generation: str = "1", **fields: Any
) -> VmReading:
    """A VM of which each cache counts (occupancy, total, local)."""
    by_cache = {
        number: {event: Reading.of(value) for event, value in zip(EVENTS, values, strict=True)}
        for number, values in enumerate(caches)
    }
    totals = {event: total([values[number] for values in caches]) for number, event in enumerate(EVENTS)}
    for event in {event for events in fields.get("packages", {}).values() for event in events}:
        counted = [found.missing or found.value or 0 for found in (of[event] for of in fields["packages"].values())]
        totals[event] = total([one for one in counted if one is not Missing.UNAVAILABLE] or counted)
    every: dict[str, Any] = {
        "uuid": uuid,
        "group": "",
        "policy": None,
        "ways": {},
        "allocated_bytes": None,
        "generation": generation,
        "read_at": read_at,
        "caches": by_cache,
        "totals": totals,
        **fields,
    }
    return VmReading(**every)


def snapshot(*vms: VmReading, monotonic: float = 10.0, host: HostReading = HOST) -> Snapshot:
    """A sweep that found these VMs."""
    found: Mapping[str, VmReading] = {vm.uuid: vm for vm in vms}
    return Snapshot(monotonic, 1000.0 + monotonic, found, host, 0.01)
