# SPDX-License-Identifier: Apache-2.0
"""What the default group moves to and from memory, as counters that never go back.

The kernel adds the counters of the VMs that are monitored inside of a group to the group's own. When such a VM ends,
all that it ever moved is gone from the sum. A monitoring system takes a counter that went back for one that began anew,
and would show the rest of it as a burst. And when a VM comes from another control group with its monitoring group, such
as out of its class, all that it ever moved is in the sum at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from vmqos.gateway.metrics.agent_answers import MBM_LOCAL, MBM_TOTAL
from vmqos.gateway.metrics.rising import Key, RisingCounters
from vmqos.local_api import contract


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that a cache moved for the default group since the gateway first heard of it; ``None`` without a number.

    :ivar total: to and from any memory.
    :ivar local: to and from that of the same socket.
    :ivar remote: to and from that of other sockets.
    """

    total: float | None
    local: float | None
    remote: float | None


class DefaultGroupTraffic:
    """Adds up how much the counters grew. Between two scrapes in which a VM ended, that may be too little.

    It begins at 0, so that a gateway that starts anew tells no more than what was moved since.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], float] = {}
        self._grown: dict[tuple[str, str], float] = {}
        self._remote = RisingCounters()
        self._elsewhere: Mapping[str, str] = {}
        """The generation of each VM that was in another control group, by UUID."""

    def update(
        self,
        caches: Mapping[str, contract.Counts],
        vms: Mapping[str, contract.VmTelemetry] = MappingProxyType({}),
    ) -> Mapping[str, Traffic]:
        """The counters by cache id; a cache that is gone is forgotten.

        :param caches: the default group's counters now, by cache id and event.
        :param vms: the VMs' own, by UUID.
        """
        keys = [(cache, event) for cache in caches for event in (MBM_TOTAL, MBM_LOCAL)]
        came = self._came(vms)
        told = {key: self._grow(key, caches[key[0]].get(key[1]), _brought(came, key)) for key in keys}
        for known in (self._last, self._grown):
            for gone in known.keys() - set(keys):
                del known[gone]
        remote: dict[Key, float | None] = {}
        for cache in caches:
            total, local = told[cache, MBM_TOTAL], told[cache, MBM_LOCAL]
            remote[cache,] = total - local if total is not None and local is not None else None
        # The two are read one after the other, so their difference may be a little less than it was.
        parts = self._remote.update(remote)
        return {cache: Traffic(told[cache, MBM_TOTAL], told[cache, MBM_LOCAL], parts.get((cache,))) for cache in caches}

    def _came(self, vms: Mapping[str, contract.VmTelemetry]) -> list[contract.VmTelemetry]:
        """The VMs that have come from another control group since, with their counters."""
        came = [
            vm for uuid, vm in vms.items() if not vm.get("group") and self._elsewhere.get(uuid) == vm.get("generation")
        ]
        self._elsewhere = {uuid: vm.get("generation", "") for uuid, vm in vms.items() if vm.get("group")}
        return came

    def _grow(self, key: tuple[str, str], now: float | None, brought: float) -> float | None:
        if now is None:
            return None
        self._grown[key] = self._grown.get(key, 0.0) + max(0.0, now - brought - self._last.get(key, now))
        self._last[key] = now
        return self._grown[key]


def _brought(came: Sequence[contract.VmTelemetry], key: tuple[str, str]) -> float:
    """What VMs that have come had moved before, and since; without end where that is not known."""
    cache, event = key
    numbers = [vm.get("caches", {}).get(cache, {}).get(event) for vm in came]
    return sum(math.inf if number is None else number for number in numbers)
