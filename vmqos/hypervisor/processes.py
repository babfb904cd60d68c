# SPDX-License-Identifier: Apache-2.0
"""What /proc says of one process or thread.

What is read often is read by ``os.open`` and ``os.read``: a third of the cost of ``open()``, and an audit reads many
files.

A process chooses much of what its files say: its arguments (``PR_SET_MM_MAP`` of prctl(2) points them anywhere), its
name, how many threads it has. So every file is read up to a bound and no further, as bytes, and split at line feeds
alone.
What reads the memory of a process (``cmdline``) also waits for its ``mmap_lock``, which the process can hold: only
:func:`says` does that, and only where nothing else tells.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vmqos.hypervisor import exceptions
from vmqos.hypervisor.model import Process

PROC = "/proc"
"""Where procfs is mounted."""

_PF_KTHREAD = 0x00200000
"""Set in the flags of a kernel thread (``include/linux/sched.h``)."""

_SERVES = re.compile(r"(?:vhost-|kvm-pit/)([0-9]+)")
"""Kernel threads that work for one process and carry its PID in their name: ``vhost_worker_create`` (before Linux 6.4;
since then its workers are threads of the process) and ``kvm_create_pit``."""

_TGID = re.compile(rb"^Tgid:\t([0-9]{1,10})$", re.MULTILINE)
_UIDS = re.compile(rb"^Uid:\t([0-9]{1,10})\t([0-9]{1,10})\t", re.MULTILINE)

LONGEST_STAT = 4096
"""Bytes of ``stat``: 52 numbers of at most 20 digits each, and a name of at most 64 bytes (``do_task_stat``)."""

HEAD_OF_STATUS = 4096
"""Bytes of ``status`` that are read. Its ``Tgid`` and ``Uid`` stand before its only long line, the up to 65 536
supplementary groups (``task_state`` in fs/proc/array.c), so the beginning is all that is needed."""

LONGEST_CGROUP = 64 * 4096
"""Bytes of ``cgroup``: a line for each hierarchy, with a path of at most PATH_MAX (``proc_cgroup_show``). There are at
most 16 controllers, and only root mounts a named hierarchy."""

LONGEST_ARGUMENTS = 6 << 20
"""Bytes of ``cmdline``: execve(2) takes no more arguments and environment, three quarters of the usual limit of the
stack, 8 MiB (``bprm_set_stack_rlimit`` and ``_STK_LIM``, Linux 4.13). Longer ones were put there afterwards."""

MOST_THREADS = 16384
"""Threads of a process that is looked at, also of all processes of a VM together. systemd lets a machine have no more
(``TasksMax=16384`` in src/machine/machine-dbus.c); KVM runs at most 4096 vCPUs, and QEMU has some dozen others."""

_CPUCLOCK_SCHED = 2

_LONGEST_SCHEDSTAT = 64
"""Bytes of ``schedstat``: three numbers of at most 20 digits each."""

_CHUNK = 65536


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


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a process, as its ``stat`` shows it (proc(5)).

    :ivar comm: its name, at most 15 bytes (63 for some kernel threads).
    :ivar state: one letter, such as ``R`` or ``Z``.
    :ivar flags: the kernel's ``PF_`` flags.
    :ivar start_time: clock ticks since boot.
    """

    comm: str
    state: str
    flags: int
    start_time: int


def of_pid(pid: int) -> Process:
    """The process that has this PID now.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is none.
    """
    return Process(pid, _stat(pid).start_time)


def still(process: Process, directory: int | None = None) -> bool:
    """Whether the process lives, and its PID is still its own.

    A zombie does not: it runs nothing any more, and where its parent does not reap it, it stays for ever.

    :param directory: the descriptor of its directory in /proc, if that is open.
    :raises vmqos.hypervisor.exceptions.ProcessUnreadable: if /proc does not tell.
    """
    try:
        first = _stat(process.pid, directory)
    except exceptions.ProcessVanished:
        return False
    return first.start_time == process.start_time and first.state not in ("Z", "X")


@contextmanager
def opened(process: Process) -> Iterator[int]:
    """Hold the process's directory of /proc open, for :func:`tasks`; gives its descriptor.

    Once the process has ended, nothing is found there any more, even if another process has its PID: the kernel looks
    for the process that was opened (``get_proc_task``), not for its PID.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if the process has ended: the same that :func:`still` says.
    :raises vmqos.hypervisor.exceptions.ProcessUnreadable: if the kernel does not allow it.
    """
    with _vanishing(process.pid):
        descriptor = os.open(f"{PROC}/{process.pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not still(process, descriptor):
            raise exceptions.ProcessVanished(pid=process.pid)
        yield descriptor
    finally:
        os.close(descriptor)


def tasks(pid: int, directory: int | None = None) -> set[int]:
    """The IDs of all threads of a process, the process's own among them.

    A process with too many threads is refused before any is listed: the folder has a link for each of them.

    :param directory: what :func:`opened` gave, where the process is to be that one.
    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is no such process.
    :raises vmqos.hypervisor.exceptions.TooManyThreads: if it has more than :data:`MOST_THREADS`.
    """
    path = f"{PROC}/{pid}/task" if directory is None else "task"
    with _vanishing(pid):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            count = os.fstat(folder).st_nlink - 2
            if count > MOST_THREADS:
                raise exceptions.TooManyThreads(pid=pid, count=count, most=MOST_THREADS)
            return set(map(int, os.listdir(folder)))
        finally:
            os.close(folder)


def thread_of(descriptor: int, tid: int) -> Thread | None:
    """One thread of the process that was opened by :func:`opened`; ``None`` where it has ended.

    :raises vmqos.hypervisor.exceptions.ProcessUnreadable: if the kernel does not allow it.
    """
    try:
        return _stat(tid, descriptor)
    except exceptions.ProcessVanished:
        return None


def exists(tid: int) -> bool:
    """Whether any process or thread has this ID."""
    return os.path.exists(f"{PROC}/{tid}")


def identify(tid: int) -> Identity:
    """Who the thread is.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is no such thread.
    """
    thread = _stat(tid)
    with _vanishing(tid):
        tgid = _TGID.search(read_file(f"{PROC}/{tid}/status", most=HEAD_OF_STATUS, cut=True))
    if tgid is None:
        raise exceptions.ProcessUnreadable(pid=tid, error="its status has no Tgid")
    return Identity(int(tgid[1]), thread.comm, bool(thread.flags & _PF_KTHREAD))


def uids(pid: int) -> tuple[int, int]:
    """The real and the effective user of a process.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is no such process.
    :raises vmqos.hypervisor.exceptions.ProcessUnreadable: if /proc does not tell.
    """
    with _vanishing(pid):
        found = _UIDS.search(read_file(f"{PROC}/{pid}/status", most=HEAD_OF_STATUS, cut=True))
    if found is None:
        raise exceptions.ProcessUnreadable(pid=pid, error="its status has no Uid")
    return int(found[1]), int(found[2])


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


def cpu_time(tid: int) -> int:
    """Nanoseconds that a thread has run so far (``proc_pid_schedstat``); 0 where it has ended, or /proc does not tell.

    Unlike the times in ``stat``, which count clock ticks, this one is exact.
    """
    try:
        first = read_file(f"{PROC}/{tid}/schedstat", most=_LONGEST_SCHEDSTAT, cut=True).partition(b" ")[0]
    except OSError:
        return 0
    return int(first) if first.isdigit() else 0


def cpu_time_of_all(pid: int) -> int:
    """Nanoseconds that all threads of a process have run so far, also those that have ended, by one system call.

    The number of a process's clock is made of its PID (``MAKE_PROCESS_CPUCLOCK`` in
    include/linux/posix-timers_types.h); 0 where the process has ended.
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return 0


def says(pid: int, arguments: Iterable[bytes]) -> bool:
    """Whether these arguments stand side by side in a process's command line.

    The command line is what the process says now, and any process may say anything. It is searched while it is read, so
    that no more of it is kept than one piece.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is no such process.
    :raises vmqos.hypervisor.exceptions.ProcessTooLong: if they are not within :data:`LONGEST_ARGUMENTS`.
    """
    wanted = b"".join(b"\0" + argument for argument in arguments) + b"\0"
    with _vanishing(pid), open(f"{PROC}/{pid}/cmdline", "rb", buffering=0) as file:
        kept, count = b"\0", 0
        while chunk := file.read(_CHUNK):
            if wanted in kept + chunk:
                return True
            count += len(chunk)
            if count > LONGEST_ARGUMENTS:
                raise exceptions.ProcessTooLong(pid=pid, name="cmdline", most=LONGEST_ARGUMENTS)
            kept = (kept + chunk)[-len(wanted) :]
    return False


def all_pids() -> list[int]:
    """The PIDs of all processes that /proc shows, in ascending order."""
    return sorted(int(name) for name in os.listdir(PROC) if name.isascii() and name.isdecimal())


def cgroups(pid: int) -> bytes:
    """The content of a process's ``cgroup``.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is no such process.
    :raises vmqos.hypervisor.exceptions.ProcessUnreadable: if the kernel does not allow it, or it is too long.
    """
    with _vanishing(pid):
        try:
            return read_file(f"{PROC}/{pid}/cgroup", most=LONGEST_CGROUP)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            raise exceptions.ProcessTooLong(pid=pid, name="cgroup", most=LONGEST_CGROUP) from error


def read_file(path: str, directory: int | None = None, *, most: int, cut: bool = False) -> bytes:
    """The whole content of a file.

    :param directory: the descriptor of the directory that ``path`` begins at, unless it begins at the root.
    :param most: bytes that it may have.
    :param cut: whether a longer file is no error, and only its beginning is read, by one call of the kernel.
    :raises OSError: if it can't be read; EFBIG if it is longer.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        if cut:
            return os.read(descriptor, most)
        chunks, left = [], most
        while chunk := os.read(descriptor, min(_CHUNK, left + 1)):
            chunks.append(chunk)
            left -= len(chunk)
            if left < 0:
                raise OSError(errno.EFBIG, f"it is longer than {most} bytes", path)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def _stat(tid: int, directory: int | None = None) -> Thread:
    """The thread's own ``stat``: to read that of its process, the kernel adds up all of the threads.

    :param directory: the descriptor of the directory of its process in /proc; ``None``: that of its ID.
    """
    path = f"task/{tid}/stat"
    with _vanishing(tid):
        text = read_file(path if directory is not None else f"{PROC}/{tid}/{path}", directory, most=LONGEST_STAT)
    # The name may hold blanks and parentheses. What is behind it begins with the third field, the state.
    before, _, after = text.rpartition(b")")
    fields = after.split()
    try:
        comm, state = before.partition(b"(")[2].decode(errors="replace"), fields[0].decode(errors="replace")
        return Thread(comm, state, flags=int(fields[6]), start_time=int(fields[19]))
    except (IndexError, ValueError):
        raise exceptions.ProcessUnreadable(pid=tid, error="its stat has no start time") from None


@contextmanager
def _vanishing(pid: int) -> Iterator[None]:
    """Turn what the kernel says of a process that is gone, or hidden, into this package's errors."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        raise exceptions.ProcessVanished(pid=pid) from None
    except OSError as error:
        raise exceptions.ProcessUnreadable(pid=pid, error=error.strerror, errno=error.errno) from error
