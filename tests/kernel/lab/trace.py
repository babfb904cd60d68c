# SPDX-License-Identifier: Apache-2.0
"""What the plugin logged: every write of a register of RDT, as a value."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MsrWrite:
    """One WRMSR in the guest.

    :ivar time: seconds, of the host's monotonic clock.
    :ivar cpu: the guest's CPU.
    :ivar register: the register's number.
    :ivar value: what was written, 64 bits.
    """

    time: float
    cpu: int
    register: int
    value: int


def read(path: Path) -> list[MsrWrite]:
    """Read a log; a last line that the end of QEMU cut off is left out."""
    found = []
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            entry = json.loads(line)
            found.append(MsrWrite(entry["t"], entry["cpu"], int(entry["reg"], 16), int(entry["val"], 16)))
    return found
