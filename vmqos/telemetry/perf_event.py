# SPDX-License-Identifier: Apache-2.0
"""Counting one task by ``perf_event_open(2)``: a group of events, which the kernel counts together."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

Event = tuple[int, int]
"""Type and config of ``struct perf_event_attr`` (include/uapi/linux/perf_event.h)."""

_SYSCALLS = {"x86_64": 298, "aarch64": 241}
_ATTR_SIZE = 112
_READ_FORMAT = 1 | 2 | 8
"""PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING, PERF_FORMAT_GROUP."""
_INHERIT = 1 << 1
_INHERIT_THREAD = 1 << 35
"""Threads alone inherit, and no other process that the task begins: since Linux 5.13."""
_CLOSE_ON_EXEC = 8

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Growth:
    """What was counted between two reads.

    :ivar enabled: nanoseconds for which the tasks ran.
    :ivar running: nanoseconds of these for which they had the processor's counters. Where others took them meanwhile,
        the counts are scaled up.
    :ivar counts: one for each event; 0 where they never had the counters, and the next growth makes up for it.
    """

    enabled: int
    running: int
    counts: tuple[int, ...]


@functools.cache
def _nothing(events: int) -> Growth:
    """What was counted of a task that did not run: one value for thousands of tasks."""
    return Growth(0, 0, (0,) * events)


@functools.cache
def _told(events: int) -> struct.Struct:
    """What a group says: how many events there are, nanoseconds enabled and running, and each count."""
    return struct.Struct(f"{3 + events}Q")


class TaskCounters:
    """Counts a task from now on, and every thread that it starts from now on, and those that these start.

    What a thread did is kept when it ends. Neither the kernel nor guests are left out.

    :param tid: the task; 0 for the caller.
    :param events: what to count; they take a descriptor each.
    :raises ProcessLookupError: if there is no such task.
    :raises OSError: if the kernel does not count it.
    """

    __slots__ = ("_before", "_descriptors", "_leader", "_nothing", "_raw", "_told")

    def __init__(self, tid: int, events: Sequence[Event]) -> None:
        self._descriptors: list[int] = []
        try:
            for event in events:
                self._descriptors.append(_open(event, tid, self._descriptors[0] if self._descriptors else -1))
            self._leader = self._descriptors[0]
            self._told, self._nothing = _told(len(events)), _nothing(len(events))
            # As bytes: the numbers of thousands of tasks would take megabytes.
            self._raw = self._before = os.read(self._leader, self._told.size)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Stop counting."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def grown(self) -> Growth:
        """What was counted since the last call.

        :raises OSError: if the kernel does not tell. ``ECHILD``: a thread was started while the group was opened, and
            has not inherited all of it (``__perf_read_group_add`` in kernel/events/core.c, since Linux 6.6).
        """
        return self._grown_to(os.read(self._leader, self._told.size))

    def _grown_to(self, raw: bytes) -> Growth:
        if raw == self._raw:
            return self._nothing
        self._raw, before, now = raw, self._told.unpack(self._before), self._told.unpack(raw)
        # How many events there are, nanoseconds enabled and running, and each count.
        enabled, running = now[1] - before[1], now[2] - before[2]
        if running <= 0:
            return Growth(enabled, 0, (0,) * (len(now) - 3))
        self._before = raw
        grown = (count - then for count, then in zip(now[3:], before[3:], strict=True))
        if running < enabled:
            return Growth(enabled, running, tuple(count * enabled // running for count in grown))
        return Growth(enabled, running, tuple(grown))


def grown_of(tasks: Iterable[TaskCounters]) -> Iterator[Growth]:
    """What was counted of each task since the last call, without those that slept: most do, and there are thousands.

    :raises OSError: see :meth:`TaskCounters.grown`.
    """
    read = os.read
    for task in tasks:
        raw = read(task._leader, task._told.size)
        if raw != task._raw:
            yield task._grown_to(raw)


def _open(event: Event, tid: int, leader: int) -> int:
    try:
        return _open_with(event, tid, leader, _INHERIT | _INHERIT_THREAD)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return _open_with(event, tid, leader, _INHERIT)


def _open_with(event: Event, tid: int, leader: int, flags: int) -> int:
    kind, config = event
    # type, size, config, sample_period, sample_type, read_format, flags; the rest is 0: counting begins at once.
    attr = struct.pack("IIQQQQQ", kind, _ATTR_SIZE, config, 0, 0, _READ_FORMAT, flags).ljust(_ATTR_SIZE, b"\0")
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    found = _libc.syscall(
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
