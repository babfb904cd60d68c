# SPDX-License-Identifier: Apache-2.0
"""The part of fanotify(7) that tells who opens and who writes which file of one mount, and lets the opener wait."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# include/uapi/linux/fanotify.h
CLOEXEC = 0x01
CLASS_CONTENT = 0x04
REPORT_TID = 0x100
UNLIMITED_QUEUE = 0x10
MARK_ADD = 0x01
MARK_MOUNT = 0x10
MODIFY = 0x02
OPEN_PERM = 0x10000
ALLOW = 0x01
AT_FDCWD = -100

_EVENT = struct.Struct("=IBBHQii")
_RESPONSE = struct.Struct("=iI")

# arch/x86/entry/syscalls/syscall_64.tbl, with the place of the flags among the arguments.
_FLAGS_OF = {2: 1, 257: 2}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]


@dataclass(frozen=True, slots=True)
class Event:
    """Somebody opens a file and waits for :meth:`Watch.allow`, or has written to it.

    :ivar tid: the thread.
    :ivar path: absolute.
    :ivar opens: whether it waits to open it.
    :ivar descriptor: our own one of the file.
    """

    tid: int
    path: Path
    opens: bool
    descriptor: int

    @property
    def for_writing(self) -> bool:
        """Whether the waiting thread opens the file for writing (by open or openat, as libcs do)."""
        file = Path(f"/proc/{self.tid}/syscall")
        try:
            # The event is there a moment before its thread sleeps and shows its arguments.
            while (call := file.read_text().split()) == ["running"]:
                time.sleep(0.001)
        except (FileNotFoundError, ProcessLookupError):
            return False
        argument = _FLAGS_OF.get(int(call[0])) if call[0].isdigit() else None
        return argument is not None and bool(int(call[1 + argument], 16) & (os.O_WRONLY | os.O_RDWR))

    @property
    def pid(self) -> int:
        """The process of the thread; 0 where it is gone."""
        try:
            lines = Path(f"/proc/{self.tid}/status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return next(int(line.split()[1]) for line in lines if line.startswith("Tgid:"))


class Watch:
    """A fanotify group; whoever opens a file of a marked mount waits until it is allowed.

    :raises OSError: if the kernel has no fanotify with permission events.
    """

    def __init__(self) -> None:
        flags = CLASS_CONTENT | REPORT_TID | UNLIMITED_QUEUE | CLOEXEC
        self.descriptor: int = _checked(_libc.fanotify_init(flags, os.O_RDONLY | os.O_CLOEXEC))

    def mark(self, mount: Path) -> None:
        """Watch a mount, until it is unmounted."""
        path = os.fsencode(mount)
        _checked(_libc.fanotify_mark(self.descriptor, MARK_ADD | MARK_MOUNT, MODIFY | OPEN_PERM, AT_FDCWD, path))

    def read(self) -> Iterator[Event]:
        """The next events; waits for one. There may be none: a file that was removed meanwhile can't be shown."""
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:
            # The kernel opens the file for us, and tells so of the first one that it can't (create_fd() in
            # fs/notify/fanotify/fanotify_user.c); the opener, if it is one, gets an error, too.
            return
        while data:
            length, _, _, _, mask, descriptor, tid = _EVENT.unpack_from(data)
            data = data[length:]
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            yield Event(tid, path, bool(mask & OPEN_PERM), descriptor)

    def allow(self, event: Event) -> None:
        """Let the waiting thread go on (one that was killed has nothing to go on with), and close the event."""
        try:
            if event.opens:
                os.write(self.descriptor, _RESPONSE.pack(event.descriptor, ALLOW))
        except FileNotFoundError:
            pass
        finally:
            os.close(event.descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
