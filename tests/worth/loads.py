# SPDX-License-Identifier: Apache-2.0
"""What a VM of the experiments is set to do, and how far it says that it got."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FW_CFG = "opt/org.vmqos/load"
AREA = 4
"""MiB of a VM's memory beside those that it works on."""
READY = len("ready\n")
"""Bytes that a VM says first; each byte behind them is a dot."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a VM does (``payload/load.c`` tells it all).

    :ivar walk: ``chase``, ``random``, ``stream``, ``copy`` or ``compress``; or the program that a Linux runs.
    :ivar size: bytes that it works on.
    :ivar every: accesses for one dot on the console, which takes the host some ten thousand instructions.
    :ivar table: of ``compress``: bytes of its table, a power of two.
    :ivar work: turns of an empty loop after each access.
    """

    walk: str
    size: int
    every: int = 100_000
    table: int = 1 << 16
    work: int = 0

    @property
    def text(self) -> str:
        """As the ROM reads it."""
        return f"walk={self.walk} size={self.size} every={self.every} table={self.table} work={self.work}"

    @property
    def memory(self) -> int:
        """MiB that the VM needs."""
        return AREA + (self.size + self.table + (1 << 20) - 1 >> 20)


def progress(console: Path, load: Load) -> int | None:
    """Accesses that the VM has reported so far; ``None`` until it is ready."""
    try:
        said = console.stat().st_size
    except FileNotFoundError:
        return None
    return (said - READY) * load.every if said >= READY else None
