# SPDX-License-Identifier: Apache-2.0
"""All tasks of a VM: QEMU's threads, its workers in the kernel, and its helper processes'."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from vmqos.hypervisor import cgroup, exceptions, processes
from vmqos.hypervisor.model import VirtualMachine


def all_tasks(vm: VirtualMachine) -> set[int]:
    """The IDs of all tasks that work for the VM alone, except kernel threads outside its cgroup (``kvm-pit/<pid>``).

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if the VM's QEMU process has ended.
    """
    with lister(vm) as list_tasks:
        return list_tasks()


@contextlib.contextmanager
def lister(vm: VirtualMachine) -> Iterator[Callable[[], set[int]]]:
    """The same for those who list them several times: a function that does it once, while the block lasts.

    Nothing in its answers belongs to another process that got a PID of the VM's meanwhile: QEMU's process is identified
    by its start time and held open from then on, and a helper counts only if it is in the VM's cgroup before and after
    its threads were listed.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if the VM's QEMU process has ended; so does the function.
    """
    with processes.opened(vm.process) as descriptor:
        yield lambda: processes.tasks_of(descriptor, vm.process.pid) | _tasks_of_helpers(vm)


def _tasks_of_helpers(vm: VirtualMachine) -> set[int]:
    helpers = _helpers(vm)
    if not helpers:
        return set()
    threads = {pid: _tasks_or_none(pid) for pid in helpers}
    return set[int]().union(*(threads[pid] for pid in helpers & _helpers(vm)))


def _helpers(vm: VirtualMachine) -> set[int]:
    """The PIDs in the VM's cgroup besides QEMU's: helper processes, and kernel threads such as ``vhost-<pid>``."""
    return cgroup.processes_in(vm.cgroup) - {vm.process.pid} if vm.cgroup else set()


def _tasks_or_none(pid: int) -> set[int]:
    try:
        return processes.tasks(pid)
    except exceptions.ProcessVanished:
        return set()
