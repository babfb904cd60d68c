# SPDX-License-Identifier: Apache-2.0
"""Remote memory traffic as a counter that never goes back."""

from __future__ import annotations

from collections.abc import Mapping

from vmqos.gateway.metrics.left_groups import are_of_one_vm
from vmqos.local_api import contract


class RemoteCounters:
    """Bytes to and from other sockets' memory: ``total - local``, which the hardware does not count itself.

    The two counters are read one after the other, so their difference may be a little less than it was. A monitoring
    system takes a counter that went back for one that began anew, and would show the whole of it as a burst.

    :ivar last: the VM's generation, both counters, and what was told, by UUID and cache id.
    """

    def __init__(self) -> None:
        self.last: dict[tuple[str, str], tuple[str, float, float, float]] = {}

    def update(self, vms: Mapping[str, contract.VmTelemetry]) -> Mapping[tuple[str, str], float]:
        """The counters by UUID and cache id, where there are numbers; those of VMs that are gone are forgotten.

        :param vms: by UUID.
        """
        found, last = {}, {}
        for uuid, vm in vms.items():
            for cache, counts in vm["caches"].items():
                key, generation = (uuid, cache), vm["generation"]
                total, local = counts["mbm_total_bytes"], counts["mbm_local_bytes"]
                known = self.last.get(key)
                if known is not None and not are_of_one_vm(known[0], generation):
                    known = None
                if total is not None and local is not None:
                    # One of the two that is less than it was began anew, and so did the other: the agent was started
                    # anew where VMs take turns to be counted, or the operator has changed what is counted.
                    goes_on = known is not None and total >= known[1] and local >= known[2]
                    highest = known[3] if known is not None and goes_on else 0.0
                    found[key] = max(total - local, highest)
                    known = generation, total, local, found[key]
                if known is not None:
                    last[key] = known
        self.last = last
        return found
