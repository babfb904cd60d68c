# SPDX-License-Identifier: Apache-2.0
"""The tasks of a VM: QEMU's threads and which of them run vCPUs, its workers in the kernel, its helper processes'."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator, Set

from vmqos.hypervisor import cgroup, exceptions, processes
from vmqos.hypervisor.model import Process, VirtualMachine

_VCPU = re.compile(r"CPU ([0-9]+)/[A-Z]+")
"""QEMU's names (``accel/kvm/kvm-accel-ops.c``, ``accel/tcg/tcg-accel-ops-mttcg.c``), which it gives its threads because
libvirt asks it to (``debug-threads=on``). One thread for all vCPUs, of software emulation, is called otherwise."""

_ANY_VCPU = re.compile(r"(?:CPU [0-9]+|ALL CPUs)/")
"""With the one thread for all vCPUs."""


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


def of_vcpus(process: Process) -> dict[int, int]:
    """The id of the thread of each vCPU that a VM has now, by the vCPU's number.

    A thread has its creator's name until it is given one of its own, so of several the one that was born first is it.
    The VM's cgroup is no better witness: its ``vcpu0`` has the threads that were born to the vCPU, too.

    :param process: the VM's QEMU process.
    :raises vmqos.hypervisor.exceptions.ProcessVanished: if it has ended.
    """
    first: dict[int, tuple[int, int]] = {}
    with processes.opened(process) as descriptor:
        for tid in processes.tasks(process.pid, descriptor):
            thread = processes.thread_of(descriptor, tid)
            named = _VCPU.fullmatch(thread.comm) if thread is not None else None
            if thread is not None and named is not None:
                number, age = int(named[1]), (thread.start_time, tid)
                first[number] = min(first.get(number, age), age)
    return {number: tid for number, (_, tid) in first.items()}


def vcpu_affinities(pid: int) -> list[frozenset[int]]:
    """The CPUs that each vCPU of a QEMU process may run on; none where it has no such threads (any more).

    A thread that runs all vCPUs counts as one.
    """
    found = []
    with contextlib.suppress(exceptions.ProcessVanished):
        for tid in sorted(processes.tasks(pid)):
            with contextlib.suppress(ProcessLookupError, exceptions.ProcessVanished):
                if _ANY_VCPU.match(processes.identify(tid).comm):
                    found.append(frozenset(os.sched_getaffinity(tid)))
    return found


class NewThreads:
    """Watches the threads of one process.

    :ivar process: the process.
    :param known: those of its threads that are not new.
    """

    def __init__(self, process: Process, known: Set[int]) -> None:
        self.process = process
        self._links = -1
        self._known = known
        self._young: Set[int] = frozenset()

    def look(self) -> Set[int]:
        """The threads that were born since the look before the last one.

        Each is told of twice, because libvirt pins a new vCPU's thread after QEMU has made it.

        :raises vmqos.hypervisor.exceptions.ProcessVanished: if the process has ended.
        :raises OSError: if its threads can't be listed.
        """
        try:
            # The directory has one link more for each thread (``proc_task_getattr``).
            links = os.stat(f"/proc/{self.process.pid}/task").st_nlink
        except OSError:
            links = 0
        if links == self._links and not self._young:
            return frozenset()
        with processes.opened(self.process) as descriptor:
            now = processes.tasks(self.process.pid, descriptor)
        found = now - self._known
        self._known = now - (found - self._young)
        self._links, self._young = links, found - self._young
        return found
