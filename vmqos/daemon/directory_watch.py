# SPDX-License-Identifier: Apache-2.0
"""Word of the files that are put into a directory or removed from it: inotify(7).

The standard library has no such call. The libraries that have it start ``ldconfig`` or a compiler to find the C library
(``ctypes.util.find_library``), which a service without a shell can't, or keep events back for half a second.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
from dataclasses import dataclass

_MOVED_TO = 0x80
_DELETE = 0x200
_DELETE_SELF = 0x400
_MOVE_SELF = 0x800
_ONLYDIR = 0x1000000
"""The events that are asked for, and that the path must be a directory (``include/uapi/linux/inotify.h``)."""

_LOST = 0x4000 | 0x8000 | 0x2000 | _DELETE_SELF | _MOVE_SELF
"""``IN_Q_OVERFLOW``, ``IN_IGNORED`` and ``IN_UNMOUNT``: events were lost, or none will come any more."""

_HEADER = struct.Struct("iIII")
_BUFFER = 65536
_libc = ctypes.CDLL(None, use_errno=True)


class EventsLost(Exception):
    """The directory is gone, or more happened in it than the kernel keeps (``fs.inotify.max_queued_events``)."""


@dataclass(frozen=True, slots=True)
class FileEvent:
    """What happened to a file.

    :ivar name: its name.
    :ivar is_gone: whether it was removed; otherwise a file was renamed to that name.
    """

    name: str
    is_gone: bool


class DirectoryWatch:
    """Watches one directory from its making on; :meth:`wake` may be called from any thread, the rest from one.

    :param path: the directory.
    :raises OSError: if there is no such directory, or the kernel has no watch left for this user.
    """

    def __init__(self, path: str) -> None:
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = -1
        # Not select(2): it takes no descriptor from 1024 on, and the agent keeps more open than that.
        self._poll = select.poll()
        try:
            self._events = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            wanted = _MOVED_TO | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
            _checked(_libc.inotify_add_watch(self._events, os.fsencode(path), ctypes.c_uint32(wanted)))
            for descriptor in (self._events, self._wakeup):
                self._poll.register(descriptor, select.POLLIN)
        except OSError:
            self.close()
            raise

    def wait(self) -> list[FileEvent]:
        """Wait until something happens; what happened since the last call, or nothing where :meth:`wake` ended it.

        :raises EventsLost: if not all that happened is known.
        """
        if self._events not in dict(self._poll.poll()):
            os.eventfd_read(self._wakeup)
            return []
        return parse(os.read(self._events, _BUFFER))

    def wake(self) -> None:
        """End the wait under way, or the next one."""
        os.eventfd_write(self._wakeup, 1)

    def close(self) -> None:
        """Give the descriptors back; no thread may call :meth:`wake` any more."""
        os.close(self._wakeup)
        if self._events >= 0:
            os.close(self._events)


def parse(data: bytes) -> list[FileEvent]:
    """Read what the kernel wrote: one ``struct inotify_event`` after the other; pure.

    :raises EventsLost: if not all that happened is known.
    """
    found, position = [], 0
    while position < len(data):
        _, mask, _, length = _HEADER.unpack_from(data, position)
        position += _HEADER.size
        if mask & _LOST:
            raise EventsLost
        name = os.fsdecode(data[position : position + length].rstrip(b"\0"))
        found.append(FileEvent(name, bool(mask & _DELETE)))
        position += length
    return found


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
