# SPDX-License-Identifier: Apache-2.0
"""What passes have still to act on: whatever was told stays owed until a pass that acted on it ended well."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from vmqos.agent.observe.running_vms import ObservedVm


@dataclass(frozen=True, slots=True)
class Claim:
    """What one pass sets out to do.

    :ivar number: how often anything was noted until then.
    :ivar everything: whether the pass has to trust nothing that was found before.
    :ivar is_news: whether something was noted since the claim before, so that the VMs have to be looked at again, too.
    """

    number: int
    everything: bool
    is_news: bool


class Owed:
    """Remembers what was told, and forgets it only when a pass pays its claim.

    A pass takes a claim first, looks at the VMs, acts, and pays. A pass that fails on its way does not pay, so the next
    one finds all of it again, for whatever reason it failed. What is told during a pass comes after its claim, and
    stays.

    Of single VMs nothing has to be noted: they are compared with those that the last paid claim was about.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted = 1
        self._claimed = 0
        self._paid = 0
        self._vms: Mapping[str, ObservedVm] = {}

    def note(self) -> None:
        """Anything may have changed; any thread may say so."""
        with self._lock:
            self._noted += 1

    def claim(self) -> Claim:
        """What the pass that begins now has to do."""
        with self._lock:
            claim = Claim(self._noted, self._noted > self._paid, self._noted > self._claimed)
            self._claimed = self._noted
            return claim

    def changed(self, vms: Mapping[str, ObservedVm]) -> frozenset[str]:
        """UUIDs of the VMs that came, went, or were looked at anew since the last pass that ended well.

        :param vms: the VMs as they are now, by UUID.
        """
        acted_on = self._vms
        return frozenset(uuid for uuid in vms.keys() | acted_on.keys() if vms.get(uuid) is not acted_on.get(uuid))

    def pay(self, claim: Claim, vms: Mapping[str, ObservedVm]) -> None:
        """The pass of this claim has ended well.

        :param vms: the VMs that it acted on, by UUID.
        """
        with self._lock:
            self._paid = max(self._paid, claim.number)
        self._vms = vms
