# SPDX-License-Identifier: Apache-2.0
"""All tasks of a VM: QEMU's threads, its workers in the kernel, and its helper processes'."""

from __future__ import annotations

from vmqos.hypervisor import cgroup, exceptions, processes
from vmqos.hypervisor.model import VirtualMachine


def all_tasks(vm: VirtualMachine) -> set[int]:
    """The IDs of all tasks that work for the VM alone, except kernel threads outside its cgroup (``kvm-pit/<pid>``).

    Nothing here belongs to another process that got a PID of the VM's meanwhile: QEMU's start time is compared before
    and after, and a helper counts only if it is in the VM's cgroup before and after its threads were listed.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if the VM's QEMU process has ended.
    """
    _require(vm)
    found = processes.tasks(vm.process.pid)
    helpers = _helpers(vm)
    if helpers:
        threads = {pid: _tasks_or_none(pid) for pid in helpers}
        found.update(*(threads[pid] for pid in helpers & _helpers(vm)))
    _require(vm)
    return found


def _require(vm: VirtualMachine) -> None:
    if not processes.still(vm.process):
        raise exceptions.ProcessVanished(pid=vm.process.pid)


def _helpers(vm: VirtualMachine) -> set[int]:
    """The PIDs in the VM's cgroup besides QEMU's: helper processes, and kernel threads such as ``vhost-<pid>``."""
    return cgroup.processes_in(vm.cgroup) - {vm.process.pid} if vm.cgroup else set()


def _tasks_or_none(pid: int) -> set[int]:
    try:
        return processes.tasks(pid)
    except exceptions.ProcessVanished:
        return set()
