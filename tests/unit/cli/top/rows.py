# SPDX-License-Identifier: Apache-2.0
"""VMs as ``vmqos top`` knows them, and the lines that it makes of them."""

from __future__ import annotations

from typing import Any

from vmqos.cli.show.fullness import Fill
from vmqos.cli.show.terminal import Terminal
from vmqos.cli.top import text_view
from vmqos.cli.top.data import Frame, Order, Row
from vmqos.telemetry import Reading

MIB = 1 << 20
PLAIN = Terminal(False, 120)
REASON = "L3 cache 0 has 3 ways to give in one piece and 6 are asked for: of its 11 ways 6 are other VMs'"
PROMISED: dict[str, Any] = {
    "state": "kept",
    "policy": "exclusive",
    "ways": {0: 2, 1: 2},
    "ways_requested": 2,
    "allocated": 6 * MIB,
    "fills": (Fill(0, 2 * MIB, 3 * MIB), Fill(1, 1 * MIB, 3 * MIB)),
    "occupancy": Reading(3 * MIB),
    "total": Reading(1536.0 * MIB),
    "local": Reading(1024.0 * MIB),
    "ipc": Reading(1.234),
}
"""What is shown of a VM that has two ways of each of two caches."""


def row(name: str, **fields: Any) -> Row:
    """A VM of that name, as ``PROMISED``."""
    known = PROMISED | {"remote": Reading(512.0 * MIB), "misses": Reading(12345.6)}
    return Row(uuid=f"{name}-uuid", name=name, instance_name=name, **(known | fields))


def frame(*rows: Row, **fields: Any) -> Frame:
    known = {"cache_ways": {0: 11, 1: 11}, "cache_bytes": {0: 17301504, 1: 17301504}}
    return Frame(1794000000.0, 2.0, "agent", rows, **(known | fields))


def text(shown: Frame, terminal: Terminal = PLAIN, order: Order | None = None, **options: Any) -> list[str]:
    drawn = text_view.draw(shown, shown.rows, order or Order(), terminal, **options)
    return [line.plain for line in drawn.lines]
