# SPDX-License-Identifier: Apache-2.0
"""Finding tasks of VMs where they do not belong, by one read of the default group's ``tasks``."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from vmqos.agent.act.move_tasks import TaskPlacement
from vmqos.agent.courtesy import LockShare
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.hypervisor import cgroup, exceptions, processes
from vmqos.hypervisor.model import Process
from vmqos.resctrl.filesystem import Filesystem

LOOKING = 0.5
"""The part of a pass's share of the lock in which new processes are identified; the next pass does the others."""

FEWEST = 32
"""How many new processes each look identifies even if its time is over, so that each look gets further."""

LOOKS_AT_UNKNOWN = 100
"""How often a kernel thread is identified that works for a process of no known VM: its VM may just be starting."""


class StrayWatch:
    """Watches the default group's tasks; one object watches one mount.

    New threads and forks inherit their creator's group. So a VM's task turns up here only if no task of the VM created
    it (libvirt starts a helper process, the kernel a thread), or if another program moved it.
    """

    def __init__(self) -> None:
        self._last = b""
        self._seen: set[int] = set()
        self._kernel_threads: dict[str, set[Process]] = {}
        self._unknown: dict[int, int] = {}
        self._looked_at = self._looked_before = -math.inf
        self.is_behind = False
        """Whether the last look gave way, or its time did not suffice to identify all new processes; the next look goes
        on."""

    def look(
        self,
        filesystem: Filesystem,
        placed: Mapping[str, TaskPlacement],
        vms: Mapping[str, ObservedVm],
        share: LockShare | None = None,
    ) -> set[str]:
        """UUIDs of the VMs that have tasks in the default group and should not.

        :param placed: what is known of the VMs' tasks, by UUID.
        :param vms: all VMs by UUID.
        :param share: the time that this pass has; ``None``: no limit.
        :raises vmqos.resctrl.exceptions.ResctrlError: if the default group can't be read.
        """
        for gone in self._kernel_threads.keys() - vms.keys():
            del self._kernel_threads[gone]
        self.is_behind = share is not None and share.gives_way()
        if self.is_behind:
            return set()
        self._looked_before, self._looked_at = self._looked_at, time.monotonic()
        raw = filesystem.read_bytes("tasks")
        if raw == self._last:
            return set()
        now = set(map(int, raw.split()))
        elsewhere = {uuid for uuid, known in placed.items() if known.target.control}
        strays = {uuid for uuid in elsewhere if not now.isdisjoint(placed[uuid].promised - placed[uuid].foreign)}
        newcomers = now - self._seen
        unknown = set[int]()
        if newcomers:
            newcomers.difference_update(*(known.tasks for known in placed.values()))
            # These VMs are about to be placed. To identify each of their threads would take a hundred times as long.
            newcomers.difference_update(*(_tasks(vms[uuid]) for uuid in vms.keys() - placed.keys()))
            found, unknown = self._identify_all(newcomers, vms, share)
            strays |= found & elsewhere
        # A kernel thread may be there before the VM it works for is known: it is identified again.
        self._unknown = {tid: looks for tid, looks in self._unknown.items() if tid in now}
        self._seen = now - unknown
        self._last = b"" if unknown else raw
        return strays

    @property
    def since_look(self) -> float:
        """Seconds since the last look."""
        return time.monotonic() - self._looked_at

    @property
    def longest(self) -> float:
        """Seconds that a task which the last look has found may have been in the default group, at most."""
        return time.monotonic() - self._looked_before

    def kernel_threads(self, uuid: str) -> set[int]:
        """The kernel threads that were seen to work for the VM, and that have not ended."""
        known = self._kernel_threads.get(uuid)
        if known is None:
            return set()
        # A VM whose network cards are plugged in and out all day leaves many that have ended.
        known -= {thread for thread in known if not processes.still(thread)}
        return {thread.pid for thread in known}

    def forget(self) -> None:
        """Look at every task anew next time."""
        self._last = b""
        self._seen = set()

    def look_again(self) -> None:
        """Compare tasks next time, even if the default group's list of tasks is what it was at the last look.

        Tasks were moved since then. If one of them is back by the next look, the list has not changed.
        """
        self._last = b""

    def _identify_all(
        self, newcomers: set[int], vms: Mapping[str, ObservedVm], share: LockShare | None
    ) -> tuple[set[str], set[int]]:
        """Find out which VMs tasks work for, as far as the time suffices.

        :param newcomers: the tasks; they are taken off the set as they are identified.
        :returns: the UUIDs of these VMs, and the tasks that the next look identifies again.
        """
        by_pid = {observed.vm.process.pid: uuid for uuid, observed in vms.items()}
        by_cgroup = {observed.vm.cgroup: uuid for uuid, observed in vms.items() if observed.vm.cgroup}
        # All threads of a process are identified at once, by the oldest one, which mostly is its first thread.
        found, unknown, asked = set[str](), set[int](), 0
        for tid in sorted(newcomers):
            if tid not in newcomers:
                continue
            if asked >= FEWEST and share is not None and share.is_over(LOOKING):
                self.is_behind = True
                return found, unknown | newcomers
            newcomers.discard(tid)
            asked += 1
            uuid = self._identify(tid, by_pid, by_cgroup, unknown, newcomers)
            if uuid is not None:
                found.add(uuid)
        return found, unknown

    def _identify(
        self,
        tid: int,
        by_pid: Mapping[int, str],
        by_cgroup: Mapping[str, str],
        unknown: set[int],
        newcomers: set[int],
    ) -> str | None:
        """The UUID of the VM that a task works for; the other threads of its process are taken off the newcomers."""
        try:
            identity = processes.identify(tid)
            if newcomers and not identity.is_kernel_thread:
                newcomers.difference_update(processes.tasks(identity.tgid))
            uuid = by_pid.get(identity.tgid)
            if uuid is not None:
                return uuid
            if identity.serves_pid is not None:
                uuid = by_pid.get(identity.serves_pid)
                if uuid is None:
                    self._unknown[tid] = self._unknown.get(tid, 0) + 1
                    if self._unknown[tid] < LOOKS_AT_UNKNOWN:
                        unknown.add(tid)
                else:
                    self._kernel_threads.setdefault(uuid, set()).add(processes.of_pid(tid))
                return uuid
            return by_cgroup.get(cgroup.vm_cgroup(tid) or "") if by_cgroup else None
        except (exceptions.HypervisorError, OSError, ValueError):
            return None


def _tasks(observed: ObservedVm) -> set[int]:
    """The threads of a VM's QEMU; none where they can't be listed, because it has ended for example."""
    try:
        with processes.opened(observed.vm.process) as descriptor:
            return processes.tasks(observed.vm.process.pid, descriptor)
    except exceptions.HypervisorError:
        return set()
