# SPDX-License-Identifier: Apache-2.0
"""The lock between applications on resctrl, ``flock`` on its root directory: waiting for it, and who holds it.

What the kernel does with processes that wait (``flock_lock_inode`` and ``__locks_wake_up_blocks`` in fs/locks.c): it
compares a request with the locks that are held, never with those that are waited for. So a writer that waits keeps no
reader out, and readers that take turns without a gap keep it waiting for ever. But the kernel wakes the writer the
moment a lock that was in its way is released, so that a gap of microseconds suffices. A process that asks again and
again instead (``LOCK_NB``) is asleep at that moment.

Hence a thread that finds the lock taken waits for it in the kernel. The readers of this process, the only ones that we
can teach manners, let its writer go first. The writer of this process, which may come back at once, leaves a gap in
which the processes that were woken can run and take the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import threading
import time

from vmqos.resctrl import exceptions

COURTESY = 0.5
"""Seconds that a reader lets a waiting writer of this process go first. Not for ever: who keeps the writer out may well
let the reader in."""

GAP = 0.002
"""Seconds between two locks of this process's writer: a process that is woken needs a CPU first."""

PROC = "/proc"
"""Where procfs is mounted."""

_LONGEST_LINE = 256
"""Bytes of a line of ``/proc/locks``: nine fields, six of them numbers (``lock_get_status``)."""
_LONGEST_LOCKS = 64 << 20
"""Bytes of ``/proc/locks`` that are searched: a million locks of the whole host. Any user may take some; it is about
the names in a message, so a part is better than to wait."""
_LONGEST_NAME = 64
"""Bytes of a name: a process's has 15, that of some kernel threads up to 63 (``proc_task_name``)."""
_MOST_HOLDERS = 8
"""Holders that are told of; any number may share a lock to read."""

_MODES = {"READ": "to read", "WRITE": "to write"}


class RootLock:
    """The lock on one directory, for all threads of this process.

    :param root: the directory.
    """

    __slots__ = ("_given_back", "_guard", "_left_behind", "_no_writer", "_root")

    def __init__(self, root: str) -> None:
        self._root = root
        self._guard = threading.Lock()
        self._left_behind: list[_Waiter] = []
        self._no_writer = threading.Event()
        self._no_writer.set()
        self._given_back = -math.inf

    def acquire(self, exclusive: bool, timeout: float | None) -> int:
        """Take the lock; :meth:`release` gives it back, and so does closing the descriptor.

        :param exclusive: whether to change something (``LOCK_EX``) or only to read (``LOCK_SH``).
        :param timeout: seconds to wait, 0 or more; ``None`` waits for ever.
        :raises vmqos.resctrl.exceptions.LockTimeout: if others kept the lock.
        :raises OSError: if the directory can't be opened or locked.
        """
        if exclusive:
            time.sleep(max(0.0, self._given_back + GAP - time.monotonic()))
        else:
            self._no_writer.wait(COURTESY if timeout is None else min(COURTESY, timeout))
        operation = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError as error:
            if timeout == 0:
                found = holders(descriptor)
                os.close(descriptor)
                raise exceptions.LockTimeout(path=self._root, timeout=timeout, holders=found) from error
        except BaseException:
            os.close(descriptor)
            raise
        if not exclusive:
            return self._wait(descriptor, operation, timeout)
        self._no_writer.clear()
        try:
            return self._wait(descriptor, operation, timeout)
        finally:
            self._no_writer.set()

    def release(self, descriptor: int, exclusive: bool) -> None:
        """Give the lock back.

        :param descriptor: what :meth:`acquire` returned.
        :param exclusive: what was asked for.
        """
        os.close(descriptor)
        if exclusive:
            self._given_back = time.monotonic()

    def _wait(self, descriptor: int, operation: int, timeout: float | None) -> int:
        """Have the kernel wait for the lock; return the descriptor that holds it."""
        waiter = self._adopt_or_start(descriptor, operation)
        got = False
        try:
            got = waiter.wait(timeout)
            if not got:
                raise exceptions.LockTimeout(path=self._root, timeout=timeout, holders=holders(waiter.descriptor))
        finally:
            if not got and waiter.leave():
                with self._guard:
                    self._left_behind.append(waiter)
        return waiter.descriptor

    def _adopt_or_start(self, descriptor: int, operation: int) -> _Waiter:
        """One that an earlier call left behind waits longest; and however often it is in vain, no thread is added."""
        with self._guard:
            self._left_behind = [waiter for waiter in self._left_behind if waiter.is_alive()]
            for waiter in self._left_behind:
                if waiter.operation == operation and waiter.adopt(descriptor):
                    self._left_behind.remove(waiter)
                    os.close(descriptor)
                    return waiter
        waiter = _Waiter(descriptor, operation)
        try:
            waiter.start()
        except RuntimeError:
            # The process has no thread left.
            os.close(descriptor)
            raise
        return waiter


class _Waiter(threading.Thread):
    """Waits in the kernel, which can't be called off: a lock that comes too late for the caller is released at once."""

    def __init__(self, descriptor: int, operation: int) -> None:
        super().__init__(name="resctrl-lock", daemon=True)
        self.descriptor = descriptor
        self.operation = operation
        self._error: OSError | None = None
        self._guard = threading.Lock()
        self._wanted = True
        self._done = threading.Event()

    def run(self) -> None:
        try:
            fcntl.flock(self.descriptor, self.operation)
        except OSError as error:
            self._error = error
        with self._guard:
            self._done.set()
            if not self._wanted or self._error:
                os.close(self.descriptor)

    def wait(self, timeout: float | None) -> bool:
        """Whether the lock is held now. :raises OSError: if the kernel refused it."""
        done = self._done.wait(timeout)
        if self._error is not None:
            raise self._error
        return done

    def leave(self) -> bool:
        """Want the lock no more; whether it is still waited for."""
        with self._guard:
            if self._done.is_set():
                if self._wanted and not self._error:
                    os.close(self.descriptor)
                return False
            self._wanted = False
            return True

    def adopt(self, descriptor: int) -> bool:
        """Want the lock again, unless the wait is over or another directory (an unmounted one) is waited for."""
        with self._guard:
            if self._done.is_set() or not os.path.sameopenfile(descriptor, self.descriptor):
                return False
            self._wanted = True
            return True


def holders(descriptor: int) -> str:
    """Who holds a lock on the open file, as far as to be seen here."""
    found = who_holds(descriptor)
    return f"it is held by {', '.join(found)}" if found else "its holder can't be seen from here"


def who_holds(descriptor: int) -> list[str]:
    """The processes that hold a lock on the open file, their ids and names: from ``/proc/locks``."""
    found = dict.fromkeys(_held(descriptor))
    return [f"process {pid} ({_command(pid)}) {_MODES.get(mode, mode)}" for pid, mode in list(found)[:_MOST_HOLDERS]]


def pids_that_hold(descriptor: int) -> list[int]:
    """The ids of the processes that took a lock on the open file, as far as this PID namespace shows them."""
    return [int(pid) for pid, _ in _held(descriptor)]


def _held(descriptor: int) -> list[tuple[str, str]]:
    """The id of each process that holds a lock on the open file, and ``READ`` or ``WRITE``."""
    status = os.fstat(descriptor)
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    found, left = [], _LONGEST_LOCKS
    with contextlib.suppress(OSError), open(f"{PROC}/locks", "rb") as locks:
        while left > 0 and (line := locks.readline(_LONGEST_LINE)):
            left -= len(line)
            # Of a lock that is waited for, the second field is an arrow.
            fields = line.decode("ascii", errors="replace").split()
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == file and fields[4].isdecimal():
                found.append((fields[4], fields[3]))
    return found


def _command(pid: str) -> str:
    try:
        with open(f"{PROC}/{pid}/comm", "rb") as comm:
            # The name may hold a line break itself, and whatever else its process likes.
            return comm.read(_LONGEST_NAME).removesuffix(b"\n").decode(errors="backslashreplace")
    except OSError:
        return "ended, or in another namespace"
