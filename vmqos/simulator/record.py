# SPDX-License-Identifier: Apache-2.0
"""What an observer is told of each operation that could change something."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TextIO

from vmqos.simulator.hardware.registers import RegisterWrite


@dataclass(frozen=True, slots=True)
class Record:
    """One operation.

    :ivar op: ``write``, ``mkdir``, ``rmdir``, ``rename``, ``chmod`` or ``chown``.
    :ivar path: below the mount point.
    :ivar data: what was written; the new name; the new mode or owner.
    :ivar pid: the thread that did it.
    :ivar errno: the name of the error, ``None`` if it succeeded.
    :ivar registers: what the hardware was told meanwhile.
    """

    op: str
    path: str
    data: str
    pid: int
    errno: str | None
    registers: tuple[RegisterWrite, ...] = ()


def to_file(file: TextIO) -> Callable[[Record], None]:
    """An observer that appends one JSON object a line, with the time in seconds since 1970.

    Numbers and values of registers are hexadecimal, as in the manuals.
    """

    def write(record: Record) -> None:
        registers = [
            {"level": one.level, "cache": one.cache, "register": f"{one.register:#x}", "value": f"{one.value:#x}"}
            for one in record.registers
        ]
        file.write(json.dumps({"time": time.time(), **asdict(record), "registers": registers}) + "\n")
        file.flush()

    return write
