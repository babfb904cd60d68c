# SPDX-License-Identifier: Apache-2.0
"""How much memory processes have, in MiB."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

MIB = 1 << 20
_PAGE = os.sysconf("SC_PAGESIZE")
_ENTRY = 8
_PRESENT = 1 << 63
_FRAME = (1 << 55) - 1
"""The kernel's ``Documentation/admin-guide/mm/pagemap.rst``."""


def of(pid: int, field: str = "VmRSS") -> float:
    """What ``/proc/PID/status`` says: ``VmRSS`` is what is resident, ``VmHWM`` the most that ever was."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def together(pids: Iterable[int]) -> float:
    """What is resident of all of them, where a page that several have is counted once.

    :raises PermissionError: if the kernel tells this process no page's address; it needs ``CAP_SYS_ADMIN``.
    """
    frames = {frame for pid in pids for frame in _frames(pid)}
    if 0 in frames:
        raise PermissionError("the kernel hides the addresses of pages from this process")
    return len(frames) * _PAGE / MIB


def _frames(pid: int) -> Iterator[int]:
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.endswith("[vsyscall]"):
                # It is the kernel's, and beyond what pagemap has.
                continue
            begin, end = (int(address, 16) // _PAGE for address in line.split()[0].split("-"))
            entries = array("Q", os.pread(file.fileno(), (end - begin) * _ENTRY, begin * _ENTRY))
            yield from (entry & _FRAME for entry in entries if entry & _PRESENT)
