# SPDX-License-Identifier: Apache-2.0
"""Remote memory traffic as a counter that never goes back."""

from __future__ import annotations

from collections.abc import Mapping

from vmqos.local_api import contract


class RemoteCounters:
    """Bytes to and from other sockets' memory: ``total - local``, which the hardware does not count itself.

    The two counters are read one after the other, so their difference may be a little less than it was. A monitoring
    system takes a counter that went back for one that began anew, and would show the whole of it as a burst.
    """

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str, str], float] = {}

    def update(self, vms: Mapping[str, contract.VmTelemetry]) -> Mapping[tuple[str, str], float]:
        """The counters by UUID and cache id, where there are numbers; those of VMs that are gone are forgotten.

        :param vms: by UUID.
        """
        found, highest = {}, {}
        for uuid, vm in vms.items():
            for cache, counts in vm["caches"].items():
                key = uuid, vm["generation"], cache
                total, local = counts["mbm_total_bytes"], counts["mbm_local_bytes"]
                known = self._highest.get(key, 0)
                if total is not None and local is not None:
                    known = found[uuid, cache] = max(total - local, known)
                highest[key] = known
        self._highest = highest
        return found
