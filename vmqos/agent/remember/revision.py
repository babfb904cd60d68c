# SPDX-License-Identifier: Apache-2.0
"""Whether the agent knows something else than before, so that a client need not ask for all of it to see that."""

from __future__ import annotations

import threading

from vmqos.agent.snapshot import Snapshot


class Revision:
    """Names what a snapshot tells of VMs and caches; every method may be called from any thread.

    :param epoch: an id that no other run of the agent has.
    """

    def __init__(self, epoch: str) -> None:
        self._epoch = epoch
        self._lock = threading.Lock()
        self._known: tuple[object, ...] | None = None
        self._count = 0

    def of(self, snapshot: Snapshot) -> str:
        """Another name whenever something of the snapshot has changed, and now and then when nothing has."""
        now = snapshot.vms, snapshot.resctrl, snapshot.topology, snapshot.policy
        with self._lock:
            known = self._known
            # A pass that changes nothing leaves the VMs as they are; to compare all of them would take long.
            if known is None or known[0] is not now[0] or known[1:] != now[1:]:
                self._count += 1
            self._known = now
            return f"{self._epoch}.{self._count}"
