# SPDX-License-Identifier: Apache-2.0
"""The doctor's words: what a check found, and how bad it is."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass


class Status(enum.Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """Worth knowing; promises can be kept."""
    PROBLEM = "problem"
    """No promise, or not every one, can be kept."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    :ivar title: what was looked at.
    :ivar detail: what was seen.
    :ivar command: what mends it, as a line for a shell where there is one; empty where nothing is to do.
    """

    title: str
    status: Status
    detail: str
    command: str = ""


def count_of(number: int, thing: str) -> str:
    """A number of things: *1 cache*, *2 caches*."""
    return f"{number} {thing}{'s' * (number != 1)}"


LONGEST = 64 << 20
"""Bytes of a file that are read: the longest that a check looks at is the list of mounts, of which a namespace has at
most 100 000 (``fs.mount-max``)."""


def read(*path: str) -> str:
    """A file's text; empty where it can't be read, which is what most checks make of it."""
    try:
        with open(os.path.join(*path), "rb") as file:
            return file.read(LONGEST).decode(errors="replace")
    except OSError:
        return ""
