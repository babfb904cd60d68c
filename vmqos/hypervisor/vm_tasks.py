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
    """A function that lists what :func:`all_tasks` lists, to be called several times while the block lasts.

    Nothing in its answers belongs to another process that got a PID of the VM's meanwhile: QEMU's process is identified
    by its start time and held open from then on, and a helper counts only if it is in the VM's cgroup before and after
    its threads were listed.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if the VM's QEMU process has ended; so does the function.
    """
    with processes.opened(vm.process) as descriptor:
        yield lambda: _all(vm, processes.tasks_of(descriptor, vm.process.pid))


def _all(vm: VirtualMachine, found: set[int]) -> set[int]:
    """QEMU's threads, and those of the helper processes.

    :raises vmqos.hypervisor.exceptions.TooManyThreads: if they are more than :data:`processes.MOST_THREADS` together.
    """
    helpers = _helpers(vm)
    if not helpers:
        return found
    threads, count = dict[int, set[int]](), len(found)
    for pid in helpers:
        threads[pid] = _tasks_or_none(pid)
        count += len(threads[pid])
        if count > processes.MOST_THREADS:
            raise exceptions.TooManyThreads(pid=vm.process.pid, count=count, most=processes.MOST_THREADS)
    return found.union(*(threads[pid] for pid in helpers & _helpers(vm)))


def _helpers(vm: VirtualMachine) -> set[int]:
    """The PIDs in the VM's cgroup besides QEMU's: helper processes, and kernel threads such as ``vhost-<pid>``."""
    return cgroup.processes_in(vm.cgroup) - {vm.process.pid} if vm.cgroup else set()


def _tasks_or_none(pid: int) -> set[int]:
    try:
        return processes.tasks(pid)
    except exceptions.ProcessVanished:
        return set()
