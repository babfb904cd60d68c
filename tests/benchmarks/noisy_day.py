# SPDX-License-Identifier: Apache-2.0
"""A day that an agent remembers of its VMs, of the kind that takes most memory: no number is there twice.

A counter's numbers of a minute are those of sixty looks, each a fifth more or less than the level, which drifts.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from vmqos.agent.sample import minutes_file
from vmqos.agent.sample.history import EXECUTED, SERIES
from vmqos.agent.sample.minutes import DAY, MINUTE, MinuteHistory, PackedMinutes, PackedTrack

KINDS = 10
"""VMs that have days of their own; the others have the same, one each."""

NOISE = 0.2

OCCUPANCY_UNIT = 106496
"""Bytes: an occupancy is a multiple of such a unit on Intel's processors."""


def write(path: Path, uuids: Sequence[str]) -> None:
    """Write the file that an agent reads at its start."""
    chance = random.Random(1)
    last = int(time.time()) // MINUTE * MINUTE
    times = array("q", range(last - DAY * MINUTE, last, MINUTE))
    series = SERIES + EXECUTED
    history = MinuteHistory(DAY, series)
    history.restore(PackedMinutes(series, times, {str(kind): PackedTrack((), _rows(chance)) for kind in range(KINDS)}))
    packed = history.packed()
    tracks = list(packed.vms.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    vms = {uuid: tracks[at % KINDS] for at, uuid in enumerate(uuids)}
    minutes_file.write(str(path), PackedMinutes(series, times, vms))


def _rows(chance: random.Random) -> array[float]:
    rows = array("f")
    levels = {name: 10 ** chance.uniform(7, 9.5) for name in SERIES + EXECUTED}
    levels["instructions_per_cycle"] = chance.uniform(0.4, 2.5)
    levels["counters_share"] = chance.uniform(0.2, 0.8)
    for _ in range(DAY):
        least, mean, greatest = [], [], []
        for name in SERIES + EXECUTED:
            level = levels[name] = levels[name] * chance.lognormvariate(0, NOISE / 10)
            values = [level * (1 + NOISE * (spread + chance.gauss(0, 0.3))) for spread in (-2.3, 2.3)]
            if name == "llc_occupancy":
                values = [value // OCCUPANCY_UNIT * OCCUPANCY_UNIT for value in values]
            least.append(values[0])
            mean.append(level * (1 + NOISE * chance.gauss(0, 0.13)))
            greatest.append(values[1])
        rows.extend([*least, *mean, *greatest])
    return rows
