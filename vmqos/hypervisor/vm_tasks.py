# SPDX-License-Identifier: Apache-2.0
"""All tasks of a VM: QEMU's threads, its workers in the kernel, and its helper processes'."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

from vmqos.hypervisor import cgroup, exceptions, processes
from vmqos.hypervisor.model import VirtualMachine


def all_tasks(vm: VirtualMachine) -> set[int]:
    """The IDs of all tasks that work for the VM alone, except kernel threads outside its cgroup (``kvm-pit/<pid>``).

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if the VM's QEMU process has ended.
    """
    with processes.opened(vm.process) as descriptor:
        return _tasks(vm, descriptor)


@contextlib.contextmanager
def lister(vm: VirtualMachine) -> Iterator[Callable[[], set[int]]]:
    """A function that lists what :func:`all_tasks` lists, to be called several times while the block lasts.

    Nothing in its answers belongs to another process that got a PID of the VM's meanwhile: QEMU's process is identified
    by its start time and held open from then on, and a helper counts only if it is in the VM's cgroup before and after
    its threads were listed.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if the VM's QEMU process has ended; so does the function.
    """
    with processes.opened(vm.process) as descriptor:
        yield functools.partial(_tasks, vm, descriptor)


def _tasks(vm: VirtualMachine, descriptor: int) -> set[int]:
    """All tasks of a VM whose QEMU process is held open.

    :param descriptor: of the process's directory in /proc.
    """
    own = processes.tasks(vm.process.pid, descriptor)
    return own | _tasks_of_helpers(vm, vm.cgroup, len(own)) if vm.cgroup else own


def _tasks_of_helpers(vm: VirtualMachine, folder: str, count: int) -> set[int]:
    """The tasks in the VM's cgroup besides QEMU's: helper processes, and kernel threads such as ``vhost-<pid>``.

    :param folder: the VM's cgroup.
    :param count: how many threads QEMU has.
    :raises vmqos.hypervisor.exceptions.TooManyThreads: if they are more than :data:`processes.MOST_THREADS` together.
    """
    threads = dict[int, set[int]]()
    for pid in cgroup.processes_in(folder) - {vm.process.pid}:
        with contextlib.suppress(exceptions.ProcessVanished):
            threads[pid] = processes.tasks(pid)
            count += len(threads[pid])
        if count > processes.MOST_THREADS:
            raise exceptions.TooManyThreads(pid=vm.process.pid, count=count, most=processes.MOST_THREADS)
    if not threads:
        return set()
    return set().union(*(threads[pid] for pid in threads.keys() & cgroup.processes_in(folder)))
