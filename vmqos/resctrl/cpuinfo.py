# SPDX-License-Identifier: Apache-2.0
"""What ``/proc/cpuinfo`` says of the first CPU. A host's CPUs are alike in all that is asked here."""

from __future__ import annotations

import re

_LONGEST = 65536
"""Bytes that hold the first CPU, which has 1.5 KiB."""
_FLAGS = re.compile(r"^flags\s*:(.*)$", re.MULTILINE)


def first_cpu(proc: str = "/proc") -> bytes:
    """The lines of the first CPU, without those of others.

    :param proc: where procfs is mounted.
    :raises OSError: if it can't be read.
    """
    with open(f"{proc}/cpuinfo", "rb") as file:
        return file.read(_LONGEST).partition(b"\n\n")[0]


def flags(proc: str = "/proc") -> frozenset[str]:
    """What the CPUs can do, in the kernel's words; empty where that can't be read, and on Arm, which says ``Features``.

    :param proc: where procfs is mounted.
    """
    try:
        found = _FLAGS.search(first_cpu(proc).decode(errors="replace"))
    except OSError:
        return frozenset()
    return frozenset(found[1].split()) if found else frozenset()
