# SPDX-License-Identifier: Apache-2.0
"""The VMs of this host, as libvirt and /proc last showed them; each is looked at again when it may have changed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vmqos.hypervisor import exceptions, processes, vm_tasks
from vmqos.hypervisor.connection import Connection
from vmqos.hypervisor.model import VirtualMachine
from vmqos.hypervisor.new_threads import NewThreads

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObservedVm:
    """A VM and what its processes may do.

    :ivar vm: the VM.
    :ivar cpus: the CPUs that at least one of its tasks may run on.
    """

    vm: VirtualMachine
    cpus: frozenset[int]


class Inventory:
    """Keeps the observed VMs up to date; :meth:`mark` may be called from any thread, the rest from one.

    :param connection: the way to libvirt.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._marked: set[str] = set()
        self._vms: dict[str, ObservedVm] = {}
        self._new_threads: dict[str, NewThreads] = {}
        self.dying: frozenset[str] = frozenset()
        """VMs that libvirt no longer lists and whose process is not gone yet."""
        self.gone: frozenset[str] = frozenset()
        """VMs whose process was found ended while libvirt's last word was that they run."""
        self.answered = False
        """Whether libvirt has ever said which VMs run: before that, nothing may be taken down."""

    @property
    def vms(self) -> Mapping[str, ObservedVm]:
        """The VMs by UUID."""
        return self._vms

    def mark(self, uuid: str) -> None:
        """Have this VM looked at again by the next :meth:`refresh`."""
        with self._lock:
            self._marked.add(uuid)

    def refresh(self, everything: bool) -> set[str]:
        """Ask libvirt which VMs run, and look at those that are new, marked, or at all of them.

        Where libvirt does not answer, or leaves out a VM whose process lives on (it may just have been restarted), the
        VM stays: its promise is the process's, not libvirt's.

        :returns: UUIDs of the VMs that were looked at, can run on more CPUs than they could, or are gone.
        """
        with self._lock:
            marked, self._marked = self._marked, set()
        try:
            running = self._connection.list_running()
        except exceptions.HypervisorError:
            with self._lock:
                self._marked |= marked
            dead = self._forget_dead(set(self._vms))
            self.gone |= dead
            return dead
        self.answered = True
        changed = self._forget_dead(self._vms.keys() - running.keys())
        self.dying = frozenset(self._vms.keys() - running.keys())
        unseen = set[str]()
        for uuid, libvirt_id in running.items():
            known = self._vms.get(uuid)
            if known is None or known.vm.libvirt_id != libvirt_id or uuid in marked or everything:
                (changed if self._look_at(uuid) else unseen).add(uuid)
            elif self._has_spread(uuid):
                changed.add(uuid)
        # libvirtd may list a VM for a while whose QEMU died while it was being restarted.
        dead = self._forget_dead(unseen & self._vms.keys())
        self.gone = frozenset(dead)
        return changed | dead

    def _look_at(self, uuid: str) -> bool:
        try:
            vm = self._connection.describe(uuid)
            if vm is None:
                return False
            tasks = vm_tasks.all_tasks(vm)
            cpus = processes.cpu_affinity(tasks)
        except (exceptions.HypervisorError, OSError) as error:
            LOG.info("VM %s can't be looked at now: %s", uuid, error)
            self.mark(uuid)
            return False
        self._vms[uuid] = ObservedVm(vm, cpus)
        watched = self._new_threads.get(uuid)
        if watched is None or watched.process != vm.process:
            self._new_threads[uuid] = NewThreads(vm.process, tasks)
        return True

    def _has_spread(self, uuid: str) -> bool:
        """Whether the VM has a new thread that may run where none of its others may.

        libvirt tells of a vCPU that is pinned elsewhere, and not of one that is plugged in there.
        """
        observed = self._vms[uuid]
        try:
            young = self._new_threads[uuid].look()
            cpus = processes.cpu_affinity(young) if young else frozenset[int]()
        except (exceptions.HypervisorError, OSError):
            return False
        if cpus <= observed.cpus:
            return False
        self._vms[uuid] = replace(observed, cpus=observed.cpus | cpus)
        return True

    def _forget_dead(self, candidates: set[str]) -> set[str]:
        dead = {uuid for uuid in candidates if not lives(self._vms[uuid].vm)}
        for uuid in dead:
            LOG.info("VM %s (%s) is gone", uuid, self._vms[uuid].vm.name)
            del self._vms[uuid]
            self._new_threads.pop(uuid, None)
        return dead


def lives(vm: VirtualMachine) -> bool:
    """Whether the VM's process has not ended; ``True`` where that can't be told."""
    try:
        return processes.still(vm.process)
    except exceptions.ProcessUnreadable as error:
        LOG.warning("whether VM %s lives can't be told: %s", vm.uuid, error)
        return True
