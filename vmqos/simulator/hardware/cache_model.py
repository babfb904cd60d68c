# SPDX-License-Identifier: Apache-2.0
"""A small model of one shared cache: how much of it each group holds, and what traffic that makes.

It is there to let a demonstration live and to point the right way: a group with fewer ways holds less and
misses more, one with ways of its own keeps its lines, an idle one loses them. It predicts no real machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmqos.simulator.hardware.counters import Counter

MISSING_BYTES_PER_SECOND = 4e9
"""What a CPU loads in a second in which it always misses."""
LEAST_MISS_RATIO = 0.02
LOCAL_SHARE = 0.85
"""How much of the traffic stays on the socket."""
IDLE_HALF_LIFE = 5.0
"""Seconds in which an idle group loses half of its lines even if no other group wants the room."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What the tasks of one class and RMID did with a cache since the last step.

    :ivar mask: the ways that they may fill.
    :ivar working_set: bytes that they go over again and again.
    :ivar seconds: CPU time.
    :ivar throttle: share of the full bandwidth that they are let have, above 0 up to 1.
    :ivar limit: bytes per second that they may load; ``inf`` if only ``throttle`` counts.
    """

    rmid: int
    mask: int
    working_set: float
    seconds: float
    throttle: float = 1.0
    limit: float = math.inf


def step(counters: Mapping[int, Counter], demands: Sequence[Demand], ways: int, size: float, elapsed: float) -> None:
    """Move the counters of one cache on.

    :param counters: by RMID; one for each demand and for every other that may hold lines.
    :param ways: how many ways the cache has.
    :param size: its bytes.
    :param elapsed: seconds since the last step.
    """
    active = [demand for demand in demands if demand.seconds > 0]
    targets = _targets(active, ways, size)
    for demand, target in zip(active, targets, strict=True):
        counter = counters[demand.rmid]
        traffic = _traffic(demand, counter.occupancy, elapsed)
        counter.total += traffic
        counter.local += traffic * LOCAL_SHARE
        if counter.occupancy < target:
            counter.occupancy = min(target, counter.occupancy + traffic)
    _forget(counters, active, targets, size, elapsed)


def _targets(demands: Sequence[Demand], ways: int, size: float) -> list[float]:
    """How many bytes each would hold in the end: its share of its ways, as far as it has use for them."""
    way_size = size / ways
    eagerness = [demand.seconds * demand.throttle / max(demand.mask.bit_count(), 1) for demand in demands]
    shares = [0.0] * len(demands)
    for way in range(ways):
        rivals = [index for index, demand in enumerate(demands) if demand.mask >> way & 1]
        total = sum(eagerness[index] for index in rivals)
        for index in rivals if total else ():
            shares[index] += way_size * eagerness[index] / total
    return [min(share, demand.working_set) for share, demand in zip(shares, demands, strict=True)]


def _traffic(demand: Demand, held: float, elapsed: float) -> float:
    misses = 1.0 - min(held / demand.working_set, 1.0) if demand.working_set else 0.0
    wanted = demand.seconds * MISSING_BYTES_PER_SECOND * max(misses, LEAST_MISS_RATIO) * demand.throttle
    return min(wanted, demand.limit * elapsed)


def _forget(
    counters: Mapping[int, Counter], active: Sequence[Demand], targets: Sequence[float], size: float, elapsed: float
) -> None:
    """Let each group that holds more lines than it would in the end lose some; none holds more than there is."""
    goals: dict[int, float] = {}
    for demand, target in zip(active, targets, strict=True):
        goals[demand.rmid] = goals.get(demand.rmid, 0.0) + target
    kept = 0.5 ** (elapsed / IDLE_HALF_LIFE)
    for rmid, counter in counters.items():
        goal = goals.get(rmid, 0.0)
        if counter.occupancy > goal:
            counter.occupancy = goal + (counter.occupancy - goal) * kept
    idle = [counter for rmid, counter in counters.items() if rmid not in goals]
    busy = [counter for rmid, counter in counters.items() if rmid in goals]
    room = size
    for some in (busy, idle):
        held = sum(counter.occupancy for counter in some)
        if held > room:
            for counter in some:
                counter.occupancy *= room / held
        room = max(room - held, 0.0)
