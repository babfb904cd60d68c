# SPDX-License-Identifier: Apache-2.0
"""Instructions, cycles and last-level cache misses of processes, by ``perf_event_open(2)``.

A process is counted thread by thread, as ``perf stat -p`` does, guests included. Counting a VM's cgroup would take a
descriptor for each of the host's CPUs, most of which count nothing; a VM has fewer threads than a host has CPUs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vmqos.telemetry import descriptors

Event = tuple[int, int]
"""Type and config of ``struct perf_event_attr`` (include/uapi/linux/perf_event.h)."""

HARDWARE: tuple[Event, Event, Event] = ((0, 0), (0, 1), (0, 3))
"""PERF_TYPE_HARDWARE: cycles, instructions, and cache misses, which are those of the last level."""

_SYSCALLS = {"x86_64": 298, "aarch64": 241}
_ATTR_SIZE = 112
_READ_FORMAT = 1 | 2 | 8
"""PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING, PERF_FORMAT_GROUP."""
_CLOSE_ON_EXEC = 8
_MOST = 512
"""Bytes: more than a group of three counters says."""

_NOT_HERE = "this kernel gives no hardware events, as in most virtual machines"
_WHY = {
    errno.ENOENT: _NOT_HERE,
    errno.ENODEV: _NOT_HERE,
    errno.EOPNOTSUPP: _NOT_HERE,
    errno.ENOSYS: "this kernel was built without perf events",
    errno.EACCES: "not permitted: run it as root, or with CAP_PERFMON",
    errno.EPERM: "not permitted: run it as root, or with CAP_PERFMON",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n)",
    errno.EBUSY: "another program has taken the counters",
}


@dataclass(frozen=True, slots=True)
class Counts:
    """How much was counted since the last time.

    :ivar known: ``False`` where nothing can be told: no thread was counted for any of that time.
    """

    cycles: float
    instructions: float
    misses: float
    known: bool


class HardwareEvents:
    """Counts processes between two calls of :meth:`read`; for one thread at a time.

    :param events: cycles, instructions and misses, or what stands in for them.
    :ivar unavailable: why nothing can be counted; empty where it can, as far as is known.
    """

    def __init__(self, events: tuple[Event, Event, Event] = HARDWARE) -> None:
        self._events = events
        self._threads: dict[tuple[int, int], _Thread] = {}
        self.unavailable = ""
        descriptors.raise_limit()
        try:
            _Thread(0, events).close()
        except OSError as error:
            self.unavailable = _why(error)

    def close(self) -> None:
        """Stop counting."""
        while self._threads:
            self._threads.popitem()[1].close()

    def read(self, pids: Iterable[int]) -> Mapping[int, Counts]:
        """What each process did since the last call, by PID; a process that is gone is left out.

        A process's first call begins to count it, and knows nothing yet.
        """
        if self.unavailable:
            return {}
        found = {}
        seen: set[tuple[int, int]] = set()
        for pid in pids:
            try:
                threads = os.listdir(f"/proc/{pid}/task")
            except OSError:
                continue
            keys = {(pid, int(name)) for name in threads}
            seen |= keys
            gone = [key for key in self._threads if key[0] == pid and key not in keys]
            found[pid] = self._add_up([*(keys & self._threads.keys()), *gone])
            self._open(keys - self._threads.keys())
        for key in self._threads.keys() - seen:
            self._threads.pop(key).close()
        return found

    def _add_up(self, keys: Iterable[tuple[int, int]]) -> Counts:
        """The growth of these threads' counters; one that has ended still says what it was."""
        grown = [counts for key in keys if (counts := self._threads[key].grown()) is not None]
        cycles, instructions, misses = (sum(counts[event] for counts in grown) for event in range(3))
        return Counts(cycles, instructions, misses, bool(grown))

    def _open(self, keys: Iterable[tuple[int, int]]) -> None:
        for key in keys:
            try:
                self._threads[key] = _Thread(key[1], self._events)
            except ProcessLookupError:
                continue
            except OSError as error:
                self.unavailable = _why(error)
                self.close()
                return


class _Thread:
    """The counters of one thread, as one group, which the kernel schedules together."""

    def __init__(self, tid: int, events: Sequence[Event]) -> None:
        self._descriptors: list[int] = []
        try:
            for event in events:
                leader = self._descriptors[0] if self._descriptors else -1
                self._descriptors.append(_open(event, tid, leader))
        except OSError:
            self.close()
            raise
        self._before = self._read()

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())

    def grown(self) -> list[float] | None:
        """The growth since the last time, scaled up where others had the counters for a part of it.

        ``None`` if they had them all the time that the thread ran.
        """
        before, self._before = self._before, self._read()
        enabled, running, *counts = (now - then for now, then in zip(self._before, before, strict=True))
        if enabled and not running:
            return None
        return [count * enabled / running if running else 0.0 for count in counts]

    def _read(self) -> tuple[int, ...]:
        """Nanoseconds enabled, nanoseconds running, and each counter."""
        raw = os.read(self._descriptors[0], _MOST)
        return struct.unpack(f"{len(raw) // 8}Q", raw)[1:]


def _open(event: Event, tid: int, leader: int) -> int:
    kind, config = event
    # type, size, config, sample_period, sample_type, read_format; the rest is 0: counting begins at once, and neither
    # the kernel nor guests are left out.
    attr = struct.pack("IIQQQQ", kind, _ATTR_SIZE, config, 0, 0, _READ_FORMAT).ljust(_ATTR_SIZE, b"\0")
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    found = ctypes.CDLL(None, use_errno=True).syscall(
        ctypes.c_long(number),
        attr,
        ctypes.c_int(tid),
        ctypes.c_int(-1),
        ctypes.c_int(leader),
        ctypes.c_ulong(_CLOSE_ON_EXEC),
    )
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(found)


def _why(error: OSError) -> str:
    return _WHY.get(error.errno or 0, f"perf_event_open fails: {error.strerror}")
