# SPDX-License-Identifier: Apache-2.0
"""The files that libvirt keeps of each running VM in its run directory, such as ``/run/libvirt/qemu``."""

from __future__ import annotations

import os
import stat


def read(path: str, most: int) -> bytes | None:
    """A regular file that root, or the user that the agent runs as, has written; ``None`` where it is none.

    :param most: bytes; a longer file is none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()) or status.st_size > most:
            return None
        content = os.read(descriptor, status.st_size + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return content
