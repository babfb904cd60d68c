# SPDX-License-Identifier: Apache-2.0
"""What passes have still to act on: a change stays owed until a pass that acted on it ended well."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vmqos.agent.observe.running_vms import ObservedVm


@dataclass(frozen=True, slots=True)
class Claim:
    """The work that one pass takes over.

    :ivar number: how many notes there were when the pass began.
    :ivar everything: whether the pass must trust nothing that was found before.
    :ivar is_news: whether there was a note since the last claim, so that the VMs must be looked at again, too.
    """

    number: int
    everything: bool
    is_news: bool

    def without_audit(self) -> Claim:
        """The claim of a pass that leaves what has been noted to the next one, and acts on changes of single VMs."""
        return replace(self, number=0, everything=False)


class Owed:
    """Remembers each note, and forgets it only when a pass pays its claim.

    A pass first takes a claim, then looks at the VMs, acts, and pays. A pass that fails does not pay, so the next pass
    finds the whole claim again. A note that comes during a pass is not part of the pass's claim, and stays.

    A change of a single VM needs no note: the VMs are compared with the VMs of the claim that was paid last.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted = 1
        self._claimed = 0
        self._paid = 0
        self._vms: Mapping[str, ObservedVm] = {}

    def note(self) -> None:
        """Note that anything may have changed; any thread may call this."""
        with self._lock:
            self._noted += 1

    def claim(self) -> Claim:
        """The work of the pass that begins now."""
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
        """Note that the pass of this claim has ended well.

        :param vms: the VMs that it acted on, by UUID.
        """
        with self._lock:
            self._paid = max(self._paid, claim.number)
        self._vms = vms
