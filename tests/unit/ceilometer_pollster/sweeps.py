# SPDX-License-Identifier: Apache-2.0
"""Sweeps made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vmqos.telemetry import EVENTS, HostReading, Missing, Reading, Snapshot, VmReading

GOLD = "38c43823-3651-469c-b344-166d1c87d77b"
PLAIN = "0b4f7a52-6c0e-4be4-9d5c-7a3f0ef0a001"


@dataclass
class Instance:
    """What discovery hands over, as far as it matters here."""

    id: str
    status: str = "active"


def vm(uuid: str, *, missing: dict[str, Missing] | None = None, promised: bool = False) -> VmReading:
    """A VM on two caches, whose counters are numbers but for those that are missing."""
    gone = missing or {}
    caches = {
        cache: {event: Reading.none(gone[event]) if event in gone else Reading(1000 * (cache + 1)) for event in EVENTS}
        for cache in (0, 1)
    }
    totals = {event: Reading.none(gone[event]) if event in gone else Reading(3000) for event in EVENTS}
    return VmReading(
        uuid=uuid,
        group=f"vmqos.{uuid}" if promised else "",
        policy="exclusive" if promised else None,
        ways={0: 2, 1: 3} if promised else {},
        allocated_bytes=5 << 20 if promised else None,
        generation="1",
        read_at=100.0,
        caches=caches,
        totals=totals,
    )


def snapshot(vms: Iterable[VmReading], events: tuple[str, ...] = EVENTS) -> Snapshot:
    """One sweep over these VMs, on a machine that counts these events."""
    host = HostReading({}, {}, {}, {}, {}, {}, closids=16, closids_used=1, rmids=32, rmids_used=1, events=events)
    return Snapshot(100.0, 1e9, {one.uuid: one for one in vms}, host, 0.001)
