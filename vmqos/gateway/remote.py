# SPDX-License-Identifier: Apache-2.0
"""Remote memory traffic as a counter that never goes back."""

from __future__ import annotations

from collections.abc import Mapping

from vmqos.telemetry.model import MBM_LOCAL, MBM_TOTAL, Reading, Snapshot


class RemoteCounters:
    """Bytes to and from other sockets' memory: ``total - local``, which the hardware does not count itself.

    The two counters are read one after the other, so their difference may be a little less than it was. A monitoring
    system takes a counter that went back for one that began anew, and would show the whole of it as a burst.
    """

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str, int], int | float] = {}

    def update(self, snapshot: Snapshot) -> Mapping[tuple[str, int], Reading]:
        """The counters of every VM and cache, by UUID and cache id; those of VMs that are gone are forgotten."""
        found = {}
        highest = {}
        for uuid, vm in snapshot.vms.items():
            for cache, readings in vm.caches.items():
                key = uuid, vm.generation, cache
                reading = self._remote(key, readings)
                found[uuid, cache] = reading
                known = self._highest.get(key) if reading.value is None else reading.value
                if known is not None:
                    highest[key] = known
        self._highest = highest
        return found

    def _remote(self, key: tuple[str, str, int], readings: Mapping[str, Reading]) -> Reading:
        for event in (MBM_TOTAL, MBM_LOCAL):
            if readings[event].value is None:
                return readings[event]
        total, local = readings[MBM_TOTAL].value, readings[MBM_LOCAL].value
        assert total is not None and local is not None
        return Reading(max(0, total - local, self._highest.get(key, 0)))
