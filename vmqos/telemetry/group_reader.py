# SPDX-License-Identifier: Apache-2.0
"""Reading all counters of one group, by kept descriptors where they may be kept."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from vmqos.resctrl.monitoring import Missing, Reading, parse
from vmqos.telemetry.shape import Shape, Sorted

_ENOUGH = 64
"""Bytes: a counter is a number of up to 20 digits, or a word."""

_WHY = {
    errno.ENODEV: Missing.VANISHED,
    errno.ENOENT: Missing.VANISHED,
    errno.EACCES: Missing.UNREADABLE,
    errno.EPERM: Missing.UNREADABLE,
}


class GroupReader:
    """The counters of one group, for as long as it is the same group.

    A kept descriptor says ENODEV once its group is removed, also where another one of the same name has been made; it
    goes along where a monitoring group is renamed. So a group whose descriptors all answer is still the same one.

    :param path: the group's directory.
    :param inode: its inode number, which no other group of the same mount ever gets.
    :param shape: the files to read.
    :ivar vanished: whether the last :meth:`read` found files gone.
    """

    def __init__(self, path: str, inode: int, shape: Shape) -> None:
        self.path = path
        self.inode = inode
        self.vanished = False
        self._shape = shape
        self._descriptors: list[int] = []
        self._raw: list[bytes] = []
        self._sorted: Sorted | None = None

    @property
    def kept(self) -> int:
        """How many descriptors are open."""
        return len(self._descriptors)

    def keep(self) -> bool:
        """Open every file, to stay open until :meth:`close`; ``False``, and none is open, if that can't be done."""
        try:
            for file in self._shape.files:
                self._descriptors.append(_open(self.path, file))
        except OSError:
            self.close()
            return False
        return True

    def close(self) -> None:
        """Close what is kept."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def read(self) -> Sorted:
        """Every counter, in this moment."""
        self.vanished = False
        try:
            raw = self._read_all()
        except OSError:
            self._raw = []
            return self._shape.sort([self._read_one(position) for position in range(len(self._shape.files))])
        if self._sorted is None or raw != self._raw:
            self._raw = raw
            self._sorted = self._shape.sort(_parse_all(raw))
        return self._sorted

    def _read_all(self) -> list[bytes]:
        if self._descriptors:
            return [os.pread(descriptor, _ENOUGH, 0) for descriptor in self._descriptors]
        return [_read_once(self.path, file) for file in self._shape.files]

    def _read_one(self, position: int) -> Reading:
        try:
            if self._descriptors:
                return parse(os.pread(self._descriptors[position], _ENOUGH, 0))
            return parse(_read_once(self.path, self._shape.files[position]))
        except OSError as error:
            missing = _WHY.get(error.errno or 0, Missing.ERROR)
            self.vanished |= missing is Missing.VANISHED
            return Reading.none(missing)


def _open(path: str, file: str) -> int:
    return os.open(f"{path}/{file}", os.O_RDONLY | os.O_CLOEXEC)


def _read_once(path: str, file: str) -> bytes:
    descriptor = _open(path, file)
    try:
        return os.read(descriptor, _ENOUGH)
    finally:
        os.close(descriptor)


def _parse_all(raw: Sequence[bytes]) -> list[Reading]:
    if b"".join(raw).replace(b"\n", b"").isdigit() and all(raw):
        return [Reading(number) for number in map(int, raw)]
    return [parse(text) for text in raw]
