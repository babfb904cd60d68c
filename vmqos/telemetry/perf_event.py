# SPDX-License-Identifier: Apache-2.0
"""Counting one task by ``perf_event_open(2)``: a group of events, which the kernel counts together."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, repeat
from operator import add, sub
from typing import NamedTuple

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
_SIZE = 8
"""Bytes of each number that a group says."""

_libc = ctypes.CDLL(None, use_errno=True)


class Growth(NamedTuple):
    """What was counted between two reads.

    :ivar enabled: nanoseconds for which the tasks ran.
    :ivar running: nanoseconds of these for which they had the processor's counters. Where others took them meanwhile,
        the counts are scaled up.
    :ivar counts: one for each event; 0 where they never had the counters, and the next growth makes up for it.
    """

    enabled: int
    running: int
    counts: tuple[int, ...]


class TaskCounters:
    """Counts a task from now on, and every thread that it starts from now on, and those that these start.

    What a thread did is kept when it ends. Neither the kernel nor guests are left out.

    :param tid: the task; 0 for the caller.
    :param events: what to count; they take a descriptor each.
    :ivar leader: the descriptor that all of them are read from.
    :raises ProcessLookupError: if there is no such task.
    :raises OSError: if the kernel does not count it.
    """

    __slots__ = ("_descriptors", "leader")

    def __init__(self, tid: int, events: Sequence[Event]) -> None:
        self._descriptors: list[int] = []
        try:
            for event in events:
                self._descriptors.append(_open(event, tid, self._descriptors[0] if self._descriptors else -1))
        except OSError:
            self.close()
            raise
        self.leader = self._descriptors[0]

    def close(self) -> None:
        """Stop counting."""
        while self._descriptors:
            os.close(self._descriptors.pop())


class GrowingCounts:
    """What some tasks do from one call of :meth:`grown` to the next.

    Hosts have thousands of tasks, and most sleep. So what all of them say is kept and compared as one row of bytes.

    :param events: how many are counted of each task.
    """

    __slots__ = ("_before", "_leaders", "_nothing", "_raw", "_width")

    def __init__(self, events: int) -> None:
        # What a group says: how many events there are, nanoseconds enabled and running, and each count.
        self._width = 3 + events
        self._nothing = Growth(0, 0, (0,) * events)
        self._leaders = array("i")
        self._raw = self._before = b""

    def add(self, task: TaskCounters) -> None:
        """One task more, of which the next growth is that from now on.

        :raises OSError: as :meth:`grown` does.
        """
        said = os.read(task.leader, _SIZE * self._width)
        self._leaders.append(task.leader)
        self._raw += said
        self._before += said

    @property
    def size(self) -> int:
        """How many bytes all of them say."""
        return len(self._raw)

    def grown(self) -> Growth:
        """What all of them did since the last call.

        :raises OSError: if the kernel does not tell. ``ECHILD``: a thread was started while the group was opened, and
            has not inherited all of it (``__perf_read_group_add`` in kernel/events/core.c, since Linux 6.6).
        """
        return self.grown_to(_said(self._leaders, _SIZE * self._width))

    def grown_to(self, raw: bytes) -> Growth:
        """What all of them did since the last call.

        :param raw: what they say now, one behind the other.
        """
        if raw == self._raw:
            return self._nothing
        width = self._width
        told = struct.Struct(f"{width * len(self._leaders)}Q")
        last, self._raw = self._raw, raw
        then, now = told.unpack(self._before), told.unpack(raw)
        enabled, running, *counts = (sum(now[at::width]) - sum(then[at::width]) for at in range(1, width))
        if running == enabled:
            # No task runs for longer than it is counted. So no other program took the counters from any.
            self._before = raw
            return Growth(enabled, running, tuple(counts))
        return self._scaled(last, then, now)

    def _scaled(self, last: bytes, then: Sequence[int], now: Sequence[int]) -> Growth:
        """The sum of what each task did, where others had the counters for a part of the time.

        :param last: what they said the last time, whether or not they had the counters then.
        :param then: what they said when each last had them, as numbers.
        :param now: what they say now, as numbers.
        """
        size, width = _SIZE * self._width, self._width
        enabled = running = 0
        counts, before = [0] * (width - 3), []
        for number in range(len(self._leaders)):
            place, at = slice(size * number, size * (number + 1)), width * number
            if self._raw[place] == last[place]:
                before.append(self._before[place])
                continue
            _, task_enabled, task_running, *grown = map(sub, now[at : at + width], then[at : at + width])
            before.append((self._raw if task_running > 0 else self._before)[place])
            enabled += task_enabled
            if task_running > 0:
                running += task_running
                if task_running < task_enabled:
                    grown = [count * task_enabled // task_running for count in grown]
                counts = list(map(add, counts, grown))
        self._before = b"".join(before)
        return Growth(enabled, running, tuple(counts))


class CountsTogether:
    """Some :class:`GrowingCounts` that are read in one go, as long as none of them gets a further task.

    :param of: those; at least one.
    """

    __slots__ = ("_leaders", "_places", "_size")

    def __init__(self, of: Sequence[GrowingCounts]) -> None:
        self._size = _SIZE * of[0]._width
        self._leaders = array("i", chain.from_iterable(one._leaders for one in of))
        ends = list(accumulate(one.size for one in of))
        self._places = [(one, slice(end - one.size, end)) for one, end in zip(of, ends, strict=True)]

    def grown(self) -> list[Growth]:
        """What each of them did since the last call.

        :raises OSError: as :meth:`GrowingCounts.grown`, of any of them. Then none of this is told, and it is not lost.
        """
        raw = _said(self._leaders, self._size)
        return [one.grown_to(raw[place]) for one, place in self._places]


def _said(leaders: Iterable[int], size: int) -> bytes:
    """What groups say, one behind the other.

    :param leaders: their descriptors.
    :param size: bytes of each.
    """
    return b"".join(map(os.read, leaders, repeat(size)))


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
