# SPDX-License-Identifier: Apache-2.0
"""One hardware event of one task: beside :mod:`vmqos.telemetry.hardware_events`, to compare."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

CYCLES, INSTRUCTIONS, REFERENCES, MISSES = range(4)
"""``enum perf_hw_id`` (include/uapi/linux/perf_event.h)."""
BRANCHES = 4

INHERIT, EXCLUDE_USER, EXCLUDE_KERNEL = 1 << 1, 1 << 4, 1 << 5
"""Bits of ``struct perf_event_attr``."""
_PERF_EVENT_OPEN = 298
_ATTR_SIZE = 112
_TIMES = 1 | 2
"""PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a counter says.

    :ivar count: events while it ran.
    :ivar enabled: nanoseconds for which the task ran.
    :ivar running: nanoseconds of these for which the event had a counter.
    """

    count: int
    enabled: int
    running: int


@dataclass(frozen=True, slots=True)
class Counter:
    """An event that is counted."""

    descriptor: int

    def read(self) -> Seen:
        """See :class:`Seen`; since it was opened."""
        return Seen(*struct.unpack("QQQ", os.read(self.descriptor, 24)))


@contextmanager
def counter(event: int, tid: int, flags: int = 0) -> Iterator[Counter]:
    """Count an event of a task from now on.

    :param flags: :data:`EXCLUDE_USER` or :data:`EXCLUDE_KERNEL`, and :data:`INHERIT` to count the threads that it
        starts, too.
    :raises OSError: if the kernel refuses it.
    """
    attr = struct.pack("IIQQQQQ", 0, _ATTR_SIZE, event, 0, 0, _TIMES, flags).ljust(_ATTR_SIZE, b"\0")
    descriptor = ctypes.CDLL(None, use_errno=True).syscall(
        ctypes.c_long(_PERF_EVENT_OPEN), attr, ctypes.c_int(tid), ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_ulong(8)
    )
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        yield Counter(descriptor)
    finally:
        os.close(descriptor)
