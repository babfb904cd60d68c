# SPDX-License-Identifier: Apache-2.0
"""Reading a file that the configuration names: a regular one, or none.

A FIFO has its reader wait for a writer, and a device may never end: a thread that opens one may stand still for ever.
"""

from __future__ import annotations

import errno
import os
import stat


def read(path: str, most: int) -> bytes:
    """The content of a regular file, or of one that a link leads to; only its beginning if it is longer.

    :param most: bytes that are read.
    :raises OSError: if it can't be read, or is no regular file.
    """
    # Without O_NONBLOCK the open of a FIFO would wait for a writer, and a terminal might become the process's own.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        _check(os.fstat(descriptor).st_mode, path)
        return file.read(most)


def check_replaceable(path: str) -> None:
    """Make sure that a file put in this place would not replace a device or the like.

    :raises OSError: if something is there that is neither a regular file nor a link.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISLNK(mode):
        _check(mode, path)


def _check(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file", path)
