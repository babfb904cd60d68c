# SPDX-License-Identifier: Apache-2.0
"""What one pass leaves to the next one, and to the starts of VMs between them."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass, field, replace

from vmqos.agent.act.move_tasks import TaskGroups
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.steps import Requested
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Allocation, Plan
from vmqos.group_names import vm_group
from vmqos.resctrl.bitmask import CapacityBitmask


@dataclass(eq=False)
class Memory:
    """What is known between passes. Who changes it holds the exclusive lock on resctrl, in any thread.

    It keeps two kinds of things. What was read is not needed for a right decision, so :meth:`forget` costs only time.
    How many ways each group was granted is never forgotten: after another program's write, only this number tells what
    each VM had.

    :ivar snapshot: what is told to others. Two threads replace it under :attr:`guard`.
    :ivar requested: what the last request step found.
    :ivar unseen: UUIDs of the VMs that keep what they have although they are not found, and names of classes that do.
    :ivar mounted_as: the mount that all of this is about; ``None`` before the first pass.
    :ivar is_mounted_anew: whether that is another mount than that of the last plan.
    :ivar is_settled: whether a pass over an unchanged host has nothing to do.
    :ivar is_unfinished: whether the last pass left something undone: its time or its share of the lock was over, or it
        gave way.
    :ivar in_force: the part of its allocation that each VM has since the last whole pass, by UUID.
    :ivar aims: the groups in which each VM's tasks belong since then, by UUID.
    :ivar granted: how many ways each group was granted, by name and cache; ``None`` before the first plan was carried
        out.
    :ivar has_taken_ways: whether the default group may lack ways that were taken from it: those of a group that is not
        there, too.
    :ivar before_trial: where masks lay before ways were tried on a VM, by group and cache, until they lie there again.
    """

    snapshot: Snapshot = field(default_factory=Snapshot)
    requested: Requested = field(default_factory=Requested)
    unseen: frozenset[str] = frozenset()
    mounted_as: tuple[int, int, int] | None = None
    is_mounted_anew: bool = False
    is_settled: bool = False
    is_unfinished: bool = False
    in_force: Mapping[str, Allocation] = field(default_factory=dict)
    aims: Mapping[str, TaskGroups] = field(default_factory=dict)
    granted: Mapping[str, Mapping[int, int]] | None = None
    has_taken_ways: bool = False
    before_trial: Mapping[str, Mapping[int, CapacityBitmask]] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def forget(self) -> None:
        """Trust nothing that earlier passes read."""
        self.is_settled = self.is_unfinished = False
        self.before_trial = {}
        with self.guard:
            last_read = self.snapshot.resctrl or self.snapshot.last_read
            self.snapshot = replace(self.snapshot, resctrl=None, last_read=last_read)

    def remember(self, plan: Plan, records: Mapping[str, VmRecord], waiting: Set[Hashable]) -> None:
        """Remember how many ways a plan that was carried out grants to each group, for the next plan.

        For some VMs the planner was asked for what they have now, and not for what their flavors say. For these VMs the
        earlier numbers stay. Without earlier numbers, a cache on which such a VM seems to have nothing is left out: an
        agent that starts anew does not know whether another program spoilt what the VM had there.

        :param waiting: UUIDs of the VMs for which something failed a short time ago, among other keys of failures.
        """
        keep = {uuid for uuid, record in records.items() if record.is_unknown or uuid in waiting}
        known, found = self.granted or {}, dict(plan.granted)
        for name in map(vm_group, keep | self.unseen):
            if name in known:
                found[name] = known[name]
            elif name in found:
                found[name] = {cache: ways for cache, ways in found[name].items() if ways}
        self.granted = found
