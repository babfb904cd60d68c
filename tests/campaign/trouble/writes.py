# SPDX-License-Identifier: Apache-2.0
"""The judge's look after a single write: is a promise broken that was in force, is a task where it must not be?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tests.campaign.trouble import seen
from tests.campaign.trouble.seen import Seen
from tests.campaign.trouble.vm import Vm
from vmqos.simulator.machine import Machine
from vmqos.simulator.profiles import CacheAllocation

PREFIX = "vmqos."
CLASS_PREFIX = "vmqos.shared-"


class Writes:
    """Judges single writes to the resctrl of one machine.

    :param vms: tells the VMs as they are now.
    :param is_meddled: whether another program changed resctrl a moment ago.
    :param is_told: whether the agent has told a VM that another program has ways of its too, and that there is no room
        to move them to. Such a VM has its tasks in its group all the same.
    """

    def __init__(
        self,
        machine: Machine,
        vms: Callable[[], Iterable[Vm]],
        is_meddled: Callable[[], bool],
        is_told: Callable[[Vm], bool] = lambda vm: False,
    ) -> None:
        self._machine = machine
        self._vms = vms
        self._is_meddled = is_meddled
        self._is_told = is_told

    def after(self, operation: str, path: str, data: str) -> Iterator[str]:
        """What is wrong after a write, though the VM's promise was in force before."""
        if not self._machine.is_mounted:
            return
        groups, at = seen.groups(self._machine), f"(after {operation} {path} {data.strip()[:60]})"
        for vm in self._vms():
            if vm.in_force and vm.is_alive and (text := self.broken(vm, groups)):
                yield f"{text} {at}"
        if operation == "write" and path.endswith("tasks"):
            for text in self._misplaced(path.rpartition("/")[0], data, groups):
                yield f"{text} {at}"

    def broken(self, vm: Vm, groups: dict[str, Seen]) -> str:
        """Why a VM has not all the ways of its own on the caches that it can run on; empty where it has."""
        own = groups.get(vm.group)
        if own is None:
            return f"{vm.group} is gone, and the VM was promised {dict(vm.specs)}"
        for cache in sorted(seen.reach(self._machine, vm.cpus)):
            mask, asked = own.masks.get(cache, 0), self.asked(vm)
            if mask.bit_count() != asked:
                return f"{vm.group} has {mask:x} on {cache} and was promised {asked} ways"
            for name, other in groups.items():
                if name != vm.group and self.is_used(name, other) and other.masks.get(cache, 0) & mask:
                    theirs = f"{name or 'the default group'} has {other.masks[cache]:x}"
                    return f"{vm.group} has {mask:x} on {cache}, and {theirs}"
        outside = vm.promised_tasks() - own.tasks
        if outside:
            # A thread that was born this moment is not known to the simulator yet.
            members = self._machine.hardware.members
            members.settle()
            outside = {tid for tid in outside & vm.promised_tasks() if seen.group_of(self._machine, tid) != vm.group}
        if outside:
            return f"{len(outside)} tasks of {vm.group} are not in it: {sorted(outside)}"
        return ""

    def _misplaced(self, folder: str, data: str, groups: dict[str, Seen]) -> Iterator[str]:
        """What is wrong with tasks that were moved to a group."""
        name = "" if folder.startswith("mon_groups/") else folder.partition("/")[0]
        if not name.startswith(PREFIX):
            return
        moved = {int(tid) for tid in data.strip().split(",") if tid}
        for vm in self._vms():
            mine = vm.tasks() & moved
            if not mine:
                continue
            moved -= mine
            if name != vm.group and not name.startswith(CLASS_PREFIX):
                yield f"{len(mine)} tasks of {vm.group} were moved to {name}"
            elif name == vm.group and vm.is_exclusive and not self._is_meddled() and self._is_whole(vm, groups[name]):
                # Its own ways must be its alone before its first task is there.
                for cache in seen.reach(self._machine, vm.cpus):
                    for other, theirs in groups.items():
                        common = theirs.masks.get(cache, 0) & groups[name].masks.get(cache, 0)
                        if other and not other.startswith(PREFIX) and self._is_told(vm):
                            continue
                        if other != name and common and self.is_used(other, theirs):
                            yield f"tasks were moved to {name} while {other or 'the default group'} had {common:x} too"

    def _is_whole(self, vm: Vm, own: Seen) -> bool:
        """Whether a VM's group has as many ways as its flavor asks for now, wherever the VM can run."""
        caches = seen.reach(self._machine, vm.cpus)
        return all(own.masks.get(cache, 0).bit_count() == self.asked(vm) for cache in caches)

    def is_used(self, name: str, group: Seen) -> bool:
        """Whether anything runs in a group."""
        alive = self._machine.hardware.processes.alive
        return not name or bool(group.cpus) or any(alive(tid) for tid in group.tasks)

    def asked(self, vm: Vm) -> int:
        """How many L3 ways the VM's flavor asks for, as the hardware rounds them."""
        wants, l3 = vm.wants, self.l3
        if wants is None or l3 is None:
            return 0
        least = max(1, l3.min_cbm_bits)
        if wants.code_ways and wants.data_ways:
            return max(wants.code_ways, least) + max(wants.data_ways, least)
        return max(wants.ways or 0, least)

    @property
    def l3(self) -> CacheAllocation | None:
        return self._machine.hardware.profile.l3
