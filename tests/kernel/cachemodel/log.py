# SPDX-License-Identifier: Apache-2.0
"""What the plugin wrote of the model's counts (``tests/kernel/plugin/report.h``), as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.kernel.cachemodel.counts import Counts, Served


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counts since boot, at one moment.

    :ivar time: seconds, of the host's monotonic clock.
    :ivar why: ``on``, ``off`` or ``emptied`` (just before the model was turned so), ``asked``, or ``end`` of QEMU.
    :ivar domain: the L3, numbered from 0.
    :ivar rmid: whose counts these are.
    :ivar evicted: lines that left the L3 for this RMID's, by the RMID whose they were; empty where that is not counted.
    """

    time: float
    why: str
    domain: int
    rmid: int
    counts: Counts
    evicted: Mapping[int, int] = field(default_factory=dict)


def read(path: Path) -> list[Snapshot]:
    """Read a file of snapshots; a last line that the end of QEMU cut off is left out."""
    return [_parse(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _parse(line: str) -> Snapshot:
    entry = json.loads(line)
    counts = Counts(
        Served(*entry["load"]),
        Served(*entry["store"]),
        Served(*entry["fetch"]),
        entry["instructions"],
        entry["writebacks"],
        entry["occupancy"],
        entry["waited_ns"],
    )
    evicted = {int(rmid): lines for rmid, lines in entry.get("evicted", {}).items()}
    return Snapshot(entry["t"], entry["why"], entry["domain"], entry["rmid"], counts, evicted)
