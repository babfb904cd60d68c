# SPDX-License-Identifier: Apache-2.0
"""VMs that libvirt does not list any more, although their QEMU lives: what they have stays theirs.

libvirt loses a VM when libvirtd is restarted and cannot read its status file of the VM, and for a moment when a VM
migrates away. An agent that runs already knows such a VM, and keeps it for as long as its process lives. An agent that
starts after that finds it here: by the tasks in the VM's group.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from vmqos.agent.observe.command_lines import CommandLines
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.daemon.log_once import LogOnce
from vmqos.group_names import Owner, vm_of
from vmqos.host.resctrl_state import ResctrlState
from vmqos.hypervisor import cgroup, exceptions, processes
from vmqos.hypervisor.model import Process
from vmqos.resctrl import tasks
from vmqos.resctrl.exceptions import Vanished
from vmqos.resctrl.filesystem import Filesystem
from vmqos.resctrl.groups import monitoring_directory

LOG = logging.getLogger(__name__)

MOST_LOOKS = 64
"""Tasks of one group that are looked at, besides the kernel's own: they are one VM's, so the first one mostly tells."""


@dataclass(frozen=True, slots=True)
class Lost:
    """What is kept for VMs that libvirt has lost.

    :ivar vms: the QEMU process of each VM, by UUID.
    :ivar classes: the QEMU processes in a class that no monitoring group tells the VMs of, by the name of the class.
    """

    vms: Mapping[str, Process] = field(default_factory=dict)
    classes: Mapping[str, frozenset[Process]] = field(default_factory=dict)

    @property
    def processes(self) -> frozenset[Process]:
        """All these processes."""
        return frozenset(self.vms.values()).union(*self.classes.values())


class LostVms:
    """Finds VMs that libvirt has lost, and knows them until their processes have ended or libvirt lists them again.

    :param filesystem: resctrl.
    :ivar found: the VMs of the last look.
    """

    def __init__(self, filesystem: Filesystem) -> None:
        self._filesystem = filesystem
        self._once = LogOnce(LOG)
        self._resctrl: ResctrlState | None = None
        self._known: tuple[Sequence[str], Set[str]] = ((), frozenset())
        self._command_lines = CommandLines()
        self._unsure: Set[Process] = frozenset()
        """Those that were found, and that have not said yet what they are."""
        self.found = Lost()

    def look(self, resctrl: ResctrlState, vms: Mapping[str, ObservedVm], others: Set[str], *, everything: bool) -> Lost:
        """Look into the groups of VMs that are not known; the caller holds the lock.

        Where nothing has changed since the last look, no file of resctrl is read.

        :param vms: the VMs that are known, by UUID.
        :param others: UUIDs of the VMs that libvirt lists or starts, and that could not be looked at yet.
        :param everything: whether to look into classes, too.
        :raises vmqos.resctrl.exceptions.ResctrlError: if the tasks of a group can't be read.
        """
        # Lists of the same strings are compared in no time, sets are not.
        names = list(vms), others
        is_same = resctrl is self._resctrl and names == self._known and not (everything or self._unsure)
        if is_same and all(self._still(process) is not None for process in self.found.processes):
            return self.found
        known = vms.keys() | others
        own = {uuid: directories for uuid, directories in _directories(resctrl).items() if uuid not in known}
        before = self.found
        sure = {uuid: process for uuid, process in before.vms.items() if process not in self._unsure}
        self._unsure = frozenset()
        if own or everything:
            self._command_lines.begin()
        found = {
            uuid: process
            for uuid, directories in own.items()
            if (process := self._still(sure.get(uuid)) or self._qemu_of(uuid, directories, vms)) is not None
        }
        classes = before.classes
        if everything:
            classes = self._in_classes(resctrl, vms, frozenset(found.values()))
        pids = {observed.vm.process for observed in vms.values()} | set(found.values())
        left = {
            name: frozenset(one for one in inside - pids if self._still(one) is not None)
            for name, inside in classes.items()
        }
        self._resctrl, self._known = resctrl, names
        self.found = Lost(found, {name: inside for name, inside in left.items() if inside})
        if self.found.vms or self.found.classes:
            self._tell(found, {} if others else self.found.classes)
        return self.found

    def _tell(self, vms: Mapping[str, Process], classes: Mapping[str, frozenset[Process]]) -> None:
        """Log what is kept, once.

        :param classes: those of which no process can be of a VM that libvirt lists and that could not be looked at yet.
        """
        for uuid, process in vms.items():
            text = "libvirt does not list VM %s any more, and its process %d lives: its groups stay until it has ended"
            self._once.log(logging.WARNING, uuid, text, uuid, process.pid)
        for name, inside in classes.items():
            pids = ", ".join(str(process.pid) for process in sorted(inside, key=lambda one: one.pid))
            text = "VMs in %s that libvirt does not list any more live (process %s): it stays until they have ended"
            self._once.log(logging.WARNING, name, text, name, pids)

    @staticmethod
    def _still(process: Process | None) -> Process | None:
        """The process if it lives; where /proc does not tell, it is taken to live."""
        try:
            return process if process is not None and processes.still(process) else None
        except exceptions.HypervisorError:
            return process

    def _qemu_of(self, uuid: str, directories: Collection[str], vms: Mapping[str, ObservedVm]) -> Process | None:
        """The QEMU of a VM that is not known, if it is in one of the VM's groups."""
        tids = set[int]().union(*(self._tasks(directory) for directory in directories))
        found = _processes(tids, vms, lambda process: self._may_say(process, b"-uuid", uuid.encode()))
        return next(found, None)

    def _in_classes(
        self, resctrl: ResctrlState, vms: Mapping[str, ObservedVm], named: Set[Process]
    ) -> dict[str, frozenset[Process]]:
        """The QEMU processes in each class that are of no known VM.

        :param named: those of VMs that groups are named after.
        """
        classes = [group.name for group in resctrl.layout.groups if group.owner is Owner.CLASS]
        if not classes:
            return {}
        known = {observed.vm.process.pid for observed in vms.values()} | {process.pid for process in named}
        # A class may have thousands of tasks; only the first thread of each process is looked at.
        leaders = set(processes.all_pids()) - known
        return {
            name: frozenset(
                _processes(self._tasks(name) & leaders, vms, lambda process: self._may_say(process, b"-uuid"))
            )
            for name in classes
        }

    def _may_say(self, process: Process, *arguments: bytes) -> bool:
        """Whether a process says this on its command line, or does not let that be read yet."""
        said = self._command_lines.say(process, *arguments)
        if said is None:
            self._unsure |= {process}
        return said is not False

    def _tasks(self, directory: str) -> set[int]:
        try:
            return tasks.read_tasks(self._filesystem, directory)
        except Vanished:
            return set()


def _directories(resctrl: ResctrlState) -> dict[str, list[str]]:
    """The control groups and monitoring groups of each VM, by the VM's UUID."""
    found = dict[str, list[str]]()
    for group in resctrl.layout.groups:
        uuid = vm_of(group.name)
        if uuid is not None and group.owner is Owner.VM:
            found.setdefault(uuid, []).append(group.name)
        if group.owner in (Owner.CLASS, Owner.DEFAULT):
            for name in resctrl.monitoring_groups.get(group.name, ()):
                if (uuid := vm_of(name)) is not None:
                    found.setdefault(uuid, []).append(monitoring_directory(group.name, name))
    return found


def _processes(tids: Set[int], vms: Mapping[str, ObservedVm], says: Callable[[Process], bool]) -> Iterator[Process]:
    """The processes of these tasks that are VMs', and of no VM that is known.

    What a process can't forge is believed first, as in :mod:`vmqos.hypervisor.qemu_process`: which cgroup it is in. A
    thread of the kernel's is no QEMU, although it may be in a VM's group and cgroup (``kvm-pit/PID``, ``vhost-PID``).

    :param vms: the VMs that are known.
    :param says: whether a process that is in no VM's cgroup says that it is one.
    """
    known = {observed.vm.process.pid for observed in vms.values()}
    folders = {observed.vm.cgroup for observed in vms.values()}
    seen = set(known)
    for pid in itertools.islice(_pids(tids), MOST_LOOKS):
        if pid in seen:
            continue
        seen.add(pid)
        try:
            process = processes.of_pid(pid)
        except exceptions.HypervisorError:
            continue
        try:
            folder = cgroup.vm_cgroup(pid)
            is_it = folder not in folders if folder is not None else says(process)
            if is_it and processes.still(process):
                yield process
        except exceptions.ProcessVanished:
            continue
        except exceptions.HypervisorError:
            # It lives, and may be the VM's.
            yield process


def _pids(tids: Set[int]) -> Iterator[int]:
    """The PID of each of these tasks, but for the kernel's own threads and those that have ended."""
    for tid in sorted(tids):
        try:
            identity = processes.identify(tid)
        except exceptions.HypervisorError:
            continue
        if not identity.is_kernel_thread:
            yield identity.tgid
