# SPDX-License-Identifier: Apache-2.0
"""The judge's look after a single write: is a promise broken that was in force, is a task where it must not be?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tests.campaign.trouble.seen import Cache, Hardware, Seen
from tests.campaign.trouble.vm import Vm

PREFIX = "vmqos."
CLASS_PREFIX = "vmqos.shared-"


class Writes:
    """Judges single writes to the resctrl of one machine.

    :param hardware: the machine.
    :param vms: tells the VMs as they are now.
    :param is_meddled: whether another program changed resctrl a moment ago.
    :ivar untold: VMs to whose groups tasks were moved while another program's group had ways of theirs, by UUID, with
        words for people. That is right if there is no room to move these ways to, and the agent tells the VM so at the
        end of its pass.
    :ivar without: VMs to whose groups tasks were moved while the group had just the default group's mask on a cache
        where the VM can run, by UUID, with words for people. Such a VM has no ways of its own there. The mask may have
        as many ways as the VM asks for all the same, by chance; then the VM must not be told that it has them.
    :ivar foreign: the masks that another program gave to groups of ours, or to the default group, by group and cache,
        until the agent writes that group's masks itself.
    """

    def __init__(
        self,
        hardware: Hardware,
        vms: Callable[[], Iterable[Vm]],
        is_meddled: Callable[[], bool],
    ) -> None:
        self._hardware = hardware
        self._vms = vms
        self._is_meddled = is_meddled
        self.untold: dict[str, str] = {}
        self.without: dict[str, str] = {}
        self.foreign: dict[str, dict[Cache, int]] = {}

    def after(self, operation: str, path: str, data: str, groups: dict[str, Seen] | None = None) -> Iterator[str]:
        """What is wrong after a write, though the VM's promise was in force before.

        :param groups: all control groups, where they were read already.
        """
        at = f"(after {operation} {path} {data.strip()[:60]})"
        groups = self._hardware.groups() if groups is None else groups
        if not groups:
            # resctrl is not mounted: no promise is in force.
            return
        for vm in self._vms():
            if vm.in_force and vm.is_alive and (text := self.broken(vm, groups)):
                yield f"{text} {at}"
        if operation == "write" and path.endswith("schemata"):
            # A write that was refused has changed nothing.
            name = path.rpartition("/")[0]
            now = groups[name].masks if name in groups else {}
            self.foreign[name] = {
                cache: mask for cache, mask in self.foreign.get(name, {}).items() if now.get(cache) == mask
            }
        if operation == "write" and path.endswith("tasks"):
            for text in self._of_other_hosts(path.rpartition("/")[0], data):
                yield f"{text} {at}"
            for text in self._misplaced(path.rpartition("/")[0], data, groups):
                yield f"{text} {at}"

    def broken(self, vm: Vm, groups: dict[str, Seen]) -> str:
        """Why a VM has not all the ways of its own on the caches that it can run on; empty where it has."""
        own = groups.get(vm.group)
        if own is None:
            return f"{vm.group} is gone, and the VM was promised {dict(vm.specs)}"
        for cache in sorted(self._hardware.reach(vm.promised_cpus())):
            mask, asked = own.masks.get(cache, 0), self.asked(vm)
            if mask.bit_count() != asked:
                return f"{vm.group} has {mask:x} on {cache} and was promised {asked} ways"
            for name, other in groups.items():
                if name != vm.group and self.is_used(name, other) and other.masks.get(cache, 0) & mask:
                    theirs = f"{name or 'the default group'} has {other.masks[cache]:x}"
                    return f"{vm.group} has {mask:x} on {cache}, and {theirs}"
        outside = vm.promised_tasks() - own.tasks
        if outside:
            # A thread may have been born or have ended since the groups were read.
            outside = {tid for tid in outside if self._hardware.group_of(tid) != vm.group} & vm.promised_tasks()
        if outside:
            return f"{len(outside)} tasks of {vm.group} are not in it: {sorted(outside)}"
        return ""

    def _of_other_hosts(self, folder: str, data: str) -> Iterator[str]:
        """The tasks of other hosts' VMs that were moved to any group."""
        for vm in self._vms():
            if vm.is_elsewhere and (theirs := vm.tasks() & _tids(data)):
                yield f"{len(theirs)} tasks of a VM of another host, {vm.uuid}, were moved to /{folder}"

    def _misplaced(self, folder: str, data: str, groups: dict[str, Seen]) -> Iterator[str]:
        """What is wrong with tasks that were moved to a group."""
        name = "" if folder.startswith("mon_groups/") else folder.partition("/")[0]
        if not name.startswith(PREFIX):
            return
        moved = _tids(data)
        for vm in self._vms():
            mine = vm.tasks() & moved
            if not mine or vm.is_elsewhere:
                continue
            moved -= mine
            if name != vm.group and not name.startswith(CLASS_PREFIX):
                yield f"{len(mine)} tasks of {vm.group} were moved to {name}"
            elif name == vm.group and vm.is_exclusive and not self._is_meddled() and self._is_whole(vm, groups[name]):
                # Its own ways must be its alone before its first task is there.
                for other, cache, common in self.sharing(vm, groups):
                    text = f"tasks were moved to {name} while {other or 'the default group'} had {common:x} too"
                    is_ours = not other or other.startswith(PREFIX)
                    if "" in groups and groups[name].masks.get(cache) == groups[""].masks.get(cache):
                        self.without[vm.uuid] = text
                    elif is_ours and not any(self._is_foreign(one, cache, groups) for one in (name, other)):
                        yield text
                    else:
                        self.untold[vm.uuid] = text

    def sharing(self, vm: Vm, groups: dict[str, Seen]) -> Iterator[tuple[str, Cache, int]]:
        """The groups in use that have ways of a VM's own group too, where the VM can run: each with cache and ways."""
        own = groups[vm.group]
        for cache in self._hardware.reach(vm.promised_cpus()):
            for name, group in groups.items():
                common = group.masks.get(cache, 0) & own.masks.get(cache, 0)
                if name != vm.group and common and self.is_used(name, group):
                    yield name, cache, common

    def _is_foreign(self, name: str, cache: Cache, groups: dict[str, Seen]) -> bool:
        """Whether a group has the mask still that another program gave it."""
        mask = self.foreign.get(name, {}).get(cache)
        return mask is not None and name in groups and groups[name].masks.get(cache) == mask

    def _is_whole(self, vm: Vm, own: Seen) -> bool:
        """Whether a VM's group has as many ways as its flavor asks for now, wherever the VM can run."""
        caches = self._hardware.reach(vm.promised_cpus())
        return all(own.masks.get(cache, 0).bit_count() == self.asked(vm) for cache in caches)

    def is_used(self, name: str, group: Seen) -> bool:
        """Whether anything runs in a group."""
        return not name or bool(group.cpus) or any(self._hardware.is_alive(tid) for tid in group.tasks)

    def asked(self, vm: Vm) -> int:
        """How many L3 ways the VM's flavor asks for, as the hardware rounds them."""
        wants, least = vm.wants, self._hardware.fewest_ways
        if wants is None or not least:
            return 0
        if wants.code_ways and wants.data_ways:
            return max(wants.code_ways, least) + max(wants.data_ways, least)
        return max(wants.ways or 0, least)


def _tids(data: str) -> set[int]:
    """The tasks of one write to a file of tasks."""
    return {int(tid) for tid in data.strip().split(",") if tid}
