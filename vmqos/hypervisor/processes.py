# SPDX-License-Identifier: Apache-2.0
"""What /proc says of one process or thread.

Files are read by ``os.open`` and ``os.read``: a third of the cost of ``open()``, and an audit reads many.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vmqos.hypervisor import exceptions
from vmqos.hypervisor.model import Process

_PF_KTHREAD = 0x00200000
"""Set in the flags of a kernel thread (``include/linux/sched.h``)."""

_SERVES = re.compile(r"(?:vhost-|kvm-pit/)([0-9]+)")
"""Kernel threads that work for one process and carry its PID in their name: ``vhost_worker_create`` (before Linux 6.4;
since then its workers are threads of the process) and ``kvm_create_pit``."""


_VCPU = re.compile(r"(?:CPU [0-9]+|ALL CPUs)/")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a thread is.

    :ivar tgid: PID of its process.
    :ivar comm: its name, at most 15 bytes (63 for some kernel threads).
    :ivar is_kernel_thread: whether it is the kernel's own, not a user process's.
    """

    tgid: int
    comm: str
    is_kernel_thread: bool

    @property
    def serves_pid(self) -> int | None:
        """PID of the process that a kernel thread was made for, as its name tells; ``None`` for any other thread."""
        named = _SERVES.fullmatch(self.comm) if self.is_kernel_thread else None
        return int(named[1]) if named else None


def of_pid(pid: int) -> Process:
    """The process that has this PID now.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is none.
    """
    return Process(pid, int(_stat(pid)[1][19]))


def still(process: Process) -> bool:
    """Whether the process lives, and its PID is still its own.

    A zombie does not: it runs nothing any more, and where nobody reaps it, it stays for ever.

    :raises vmqos.hypervisor.exceptions.ProcessUnreadable: if /proc does not tell.
    """
    try:
        fields = _stat(process.pid)[1]
    except exceptions.ProcessVanished:
        return False
    return _is(process, fields)


def _is(process: Process, fields: list[bytes]) -> bool:
    return int(fields[19]) == process.start_time and fields[0] not in (b"Z", b"X")


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a process.

    :ivar comm: its name, at most 15 bytes.
    :ivar start_time: clock ticks since boot.
    """

    comm: str
    start_time: int


@contextmanager
def opened(process: Process) -> Iterator[int]:
    """Hold the process's directory of /proc open, for :func:`tasks_of`; gives its descriptor.

    Once the process has ended, nothing is found there any more, whoever has its PID by then: the kernel looks for the
    process that was opened (``get_proc_task``), not for its PID.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if the process has ended: the same that :func:`still` says.
    :raises vmqos.hypervisor.exceptions.ProcessUnreadable: if the kernel does not allow it.
    """
    with _vanishing(process.pid):
        descriptor = os.open(f"/proc/{process.pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _vanishing(process.pid):
            # Its first thread's: to read the process's own stat, the kernel adds up all of the threads.
            _, fields = _parse_stat(read_file(f"task/{process.pid}/stat", descriptor))
        if not _is(process, fields):
            raise exceptions.ProcessVanished(pid=process.pid)
        yield descriptor
    finally:
        os.close(descriptor)


def tasks_of(descriptor: int, pid: int) -> set[int]:
    """The IDs of all threads of the process that was opened by :func:`opened`.

    :param pid: its PID, for the error.
    :raises vmqos.hypervisor.exceptions.ProcessVanished: if it has ended.
    """
    with _vanishing(pid):
        folder = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor)
        try:
            return set(map(int, os.listdir(folder)))
        finally:
            os.close(folder)


def thread_of(descriptor: int, tid: int) -> Thread | None:
    """One thread of the process that was opened by :func:`opened`; ``None`` where it has ended.

    :raises vmqos.hypervisor.exceptions.ProcessUnreadable: if the kernel does not allow it.
    """
    try:
        with _vanishing(tid):
            comm, fields = _parse_stat(read_file(f"task/{tid}/stat", descriptor))
    except exceptions.ProcessVanished:
        return None
    return Thread(comm.decode(errors="replace"), int(fields[19]))


def exists(tid: int) -> bool:
    """Whether any process or thread has this ID."""
    return os.path.exists(f"/proc/{tid}")


def identify(tid: int) -> Identity:
    """Who the thread is.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is no such thread.
    """
    comm, fields = _stat(tid)
    tgid = re.search(rb"^Tgid:\s*([0-9]+)$", read(tid, "status"), re.MULTILINE)
    if tgid is None:
        raise exceptions.ProcessUnreadable(pid=tid, error="its status has no Tgid")
    return Identity(int(tgid[1]), comm.decode(errors="replace"), bool(int(fields[6]) & _PF_KTHREAD))


def tasks(pid: int) -> set[int]:
    """The IDs of all threads of a process, the process's own among them.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is no such process.
    """
    with _vanishing(pid):
        return set(map(int, os.listdir(f"/proc/{pid}/task")))


def cpu_affinity(tids: Iterable[int]) -> frozenset[int]:
    """The CPUs that at least one of the threads may run on; threads that have ended count for nothing.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if all of them have ended.
    """
    cpus, last = set[int](), 0
    for last in tids:
        try:
            cpus |= os.sched_getaffinity(last)
        except ProcessLookupError:
            continue
    if not cpus:
        raise exceptions.ProcessVanished(pid=last)
    return frozenset(cpus)


def affinities(tids: Iterable[int]) -> Iterator[frozenset[int]]:
    """The CPUs that each of the threads may run on; those that have ended are left out."""
    for tid in tids:
        with contextlib.suppress(ProcessLookupError):
            yield frozenset(os.sched_getaffinity(tid))


def vcpu_affinities(pid: int) -> list[frozenset[int]]:
    """The CPUs that each vCPU of a QEMU process may run on; none where it has no such threads (any more).

    QEMU names the threads ``CPU 0/KVM``, ``CPU 0/TCG`` or ``ALL CPUs/TCG`` (``qemu_thread_naming``, which libvirt turns
    on).
    """
    found = []
    with contextlib.suppress(FileNotFoundError, exceptions.ProcessVanished):
        for tid in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):
            with contextlib.suppress(ProcessLookupError, exceptions.ProcessVanished):
                if _VCPU.match(identify(tid).comm):
                    found.append(frozenset(os.sched_getaffinity(tid)))
    return found


def command_line(pid: int) -> list[bytes]:
    """The arguments that a process was started with, its program's name first; empty for a kernel thread.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is no such process.
    """
    return read(pid, "cmdline").split(b"\0")[:-1]


def all_pids() -> list[int]:
    """The PIDs of all processes that /proc shows, in ascending order."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def read(pid: int, name: str) -> bytes:
    """The content of ``/proc/<pid>/<name>``.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is no such process.
    :raises vmqos.hypervisor.exceptions.ProcessUnreadable: if the kernel does not allow it.
    """
    with _vanishing(pid):
        return read_file(f"/proc/{pid}/{name}")


def read_file(path: str, directory: int | None = None) -> bytes:
    """The whole content of a file.

    :param directory: the descriptor of the directory that ``path`` begins at, unless it begins at the root.
    :raises OSError: if it can't be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        content = b""
        while chunk := os.read(descriptor, 65536):
            content += chunk
        return content
    finally:
        os.close(descriptor)


def _stat(pid: int) -> tuple[bytes, list[bytes]]:
    return _parse_stat(read(pid, "stat"))


def _parse_stat(text: bytes) -> tuple[bytes, list[bytes]]:
    """The name, which may hold blanks and parentheses, and proc(5)'s fields of stat from the third, the state, on."""
    before, _, after = text.rpartition(b")")
    return before.partition(b"(")[2], after.split()


@contextmanager
def _vanishing(pid: int) -> Iterator[None]:
    """Turn what the kernel says of a process that is gone, or hidden, into this package's errors."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        raise exceptions.ProcessVanished(pid=pid) from None
    except OSError as error:
        raise exceptions.ProcessUnreadable(pid=pid, error=error.strerror) from error
