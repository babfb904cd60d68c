# SPDX-License-Identifier: Apache-2.0
"""Finding tasks of VMs where they do not belong, by one read of the default group's ``tasks``."""

from __future__ import annotations

from collections.abc import Mapping

from vmqos.agent.inventory import ObservedVm
from vmqos.hypervisor import cgroup, exceptions, processes
from vmqos.resctrl.filesystem import Filesystem


class StrayWatch:
    """Watches the default group's tasks; one object watches one mount.

    New threads and forks inherit their creator's group, so a VM's task turns up here only if it was born to nobody of
    the VM (a helper process that libvirt starts, a kernel thread), or if somebody moved it.
    """

    def __init__(self) -> None:
        self._last = b""
        self._seen: set[int] = set()
        self._kernel_threads: dict[str, set[int]] = {}

    def look(self, filesystem: Filesystem, owners: Mapping[int, str], vms: Mapping[str, ObservedVm]) -> set[str]:
        """UUIDs of the VMs that have tasks in the default group and should not.

        :param owners: the VM of each task that belongs elsewhere, as far as known.
        :param vms: all VMs by UUID.
        :raises vmqos.resctrl.exceptions.ResctrlError: if the default group can't be read.
        """
        raw = filesystem.read_bytes("tasks")
        if raw == self._last:
            return set()
        self._last = raw
        now = set(map(int, raw.split()))
        strays = {owners[tid] for tid in now & owners.keys()}
        newcomers = now - self._seen
        self._seen = now
        if newcomers:
            by_pid = {observed.vm.process.pid: uuid for uuid, observed in vms.items()}
            by_cgroup = {observed.vm.cgroup: uuid for uuid, observed in vms.items() if observed.vm.cgroup}
            elsewhere = set(owners.values())
            for tid in newcomers:
                uuid = self._identify(tid, by_pid, by_cgroup)
                if uuid in elsewhere:
                    strays.add(uuid)
        return strays

    def kernel_threads(self, uuid: str) -> set[int]:
        """The kernel threads that were seen working for the VM and still do."""
        alive = {tid for tid in self._kernel_threads.get(uuid, ()) if processes.exists(tid)}
        if uuid in self._kernel_threads:
            self._kernel_threads[uuid] = alive
        return alive

    def forget(self) -> None:
        """Look at every task anew next time."""
        self._last = b""
        self._seen = set()

    def _identify(self, tid: int, by_pid: Mapping[int, str], by_cgroup: Mapping[str, str]) -> str | None:
        try:
            identity = processes.identify(tid)
            uuid = by_pid.get(identity.tgid)
            if uuid is not None:
                return uuid
            if identity.serves_pid is not None:
                uuid = by_pid.get(identity.serves_pid)
                if uuid is not None:
                    self._kernel_threads.setdefault(uuid, set()).add(tid)
                return uuid
            return by_cgroup.get(cgroup.vm_cgroup(tid) or "") if by_cgroup else None
        except exceptions.HypervisorError:
            return None
