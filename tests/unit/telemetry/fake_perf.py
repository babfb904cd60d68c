# SPDX-License-Identifier: Apache-2.0
"""A kernel that counts tasks as a test says, in the place of ``perf_event_open(2)``."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

import pytest

from vmqos.telemetry import hardware_events, perf_event

INHERIT, INHERIT_THREAD = 1 << 1, 1 << 35


class FakePerf:
    """Groups of events, with what each says.

    :ivar says: nanoseconds enabled and running, and the counts, by task; zeros for one that is not there.
    :ivar refuses: the errno with which a task is refused; that of 0 is every task's.
    :ivar flags: those of ``struct perf_event_attr`` that were asked for, in order.
    :ivar known_flags: those that this kernel knows.
    :ivar read_fails: the errno with which a task's group can't be read.
    """

    def __init__(self) -> None:
        self.says: dict[int, tuple[int, ...]] = {}
        self.refuses: dict[int, int] = {}
        self.read_fails: dict[int, int] = {}
        self.flags: list[int] = []
        self.known_flags = INHERIT | INHERIT_THREAD
        self.most_open = 1 << 20
        self._leaders: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()
        self._next = 1_000_000

    @property
    def tasks(self) -> list[int]:
        """The tasks that are counted."""
        return sorted(tid for descriptor, tid in self._leaders.items() if descriptor in self._open)

    @property
    def descriptors(self) -> int:
        return len(self._open)

    def syscall(
        self, number: object, attr: bytes, tid: ctypes.c_int, cpu: object, leader: ctypes.c_int, _: object
    ) -> int:
        flags = struct.unpack_from("Q", attr, 40)[0]
        self.flags.append(flags)
        failed = self.refuses.get(tid.value, self.refuses.get(0, 0))
        if flags & ~self.known_flags:
            failed = errno.EINVAL
        if len(self._open) >= self.most_open:
            failed = errno.EMFILE
        if failed:
            ctypes.set_errno(failed)
            return -1
        self._next += 1
        self._open.add(self._next)
        if leader.value == -1:
            self._leaders[self._next] = tid.value
            self._sizes[self._next] = 1
        else:
            self._sizes[leader.value] += 1
        return self._next

    def read(self, descriptor: int, most: int) -> bytes:
        tid, size = self._leaders[descriptor], self._sizes[descriptor]
        if tid in self.read_fails:
            raise OSError(self.read_fails[tid], os.strerror(self.read_fails[tid]))
        said = self.says.get(tid, (0,) * (2 + size))
        return struct.pack(f"{3 + size}Q", size, *said)

    def close(self, descriptor: int) -> None:
        self._open.remove(descriptor)


class _Os:
    """The module, with the two functions that a descriptor is used by."""

    def __init__(self, perf: FakePerf) -> None:
        self.read = lambda descriptor, most: perf.read(descriptor, most)
        self.close, self.strerror = perf.close, os.strerror


def put_in_place(monkeypatch: pytest.MonkeyPatch) -> FakePerf:
    """Have :mod:`vmqos.telemetry.perf_event` ask such a kernel."""
    made = FakePerf()
    monkeypatch.setattr(perf_event, "_libc", made)
    monkeypatch.setattr(perf_event, "os", _Os(made))
    monkeypatch.setattr(hardware_events, "PARANOID", "/nonexistent")
    monkeypatch.setattr(hardware_events, "STATUS", "/nonexistent")
    return made
