# SPDX-License-Identifier: Apache-2.0
"""A VM without ways of its own that is let have some, natively: what it still finds in those that it left.

A mask says where a VM may bring lines in, and not where it may find them. So the VM finds what it left until others
have taken it. How long that takes is told in *turns*, too: how many times as much the others have brought in as the
ways hold that they may fill. A turn is a fraction of a second where VMs stream, and hours where none does anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.worth.native import Load, Machine, Order, Task
from tests.worth.size.loads import KINDS, SIZE, WALKS, WAYS, draw
from tests.worth.size.stepping import BEFORE, HZ, each_second, sample
from vmqos.cli.size import leaving
from vmqos.insight import size as law
from vmqos.insight.model import Sample
from vmqos.insight.size import Point

LAST = 12
"""The most ways that the VM is tried with."""
TRUE_SECONDS = 40.0
"""For which it is counted what the VM misses that has had its ways from the beginning."""
LEFT, VM, OTHERS = 1, 2, 3
"""Groups: the VM's before its trial, its own, and that of its neighbour."""
ALL = (1 << WAYS) - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a VM is before.

    :ivar mask: the ways that it fills.
    :ivar first: with how many of its own it begins.
    """

    mask: int
    first: int


PLACES: Mapping[str, Place] = {"promised none": Place(ALL, 1), "in a class": Place(0xF000, 4)}
NEIGHBOURS: Mapping[str, Load] = {
    "streams": Load(Order.ENDLESS, instructions=40, overlap=4),
    "streams a little": Load(Order.ENDLESS, instructions=4000, overlap=4),
    "walks": Load(Order.SHUFFLED, SIZE, 100),
}
"""What the others do. One that streams a little turns the cache in half a minute, the others in a second or two."""


def loads(seed: int) -> Mapping[str, Sequence[Load]]:
    """One load of each kind: walkers of three sizes, a stream, LZ4, and two key-value stores."""
    drawn = draw(seed)
    kept = [kind for kind in KINDS if kind.startswith(("walker", "stream")) or kind.endswith(("small", "large"))]
    # Its table, and what it reads and writes once.
    lz4 = [
        Load(Order.RANDOM, 64 << 10, WALKS, seconds=0.05),
        Load(Order.ENDLESS, instructions=WALKS, overlap=8, seconds=0.05),
    ]
    return {kind: drawn[kind] for kind in dict.fromkeys(kept) if "random" not in kind} | {"LZ4": lz4}


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one VM.

    :ivar points: by ways.
    :ivar still: by ways, bytes that it had in other ways when it had been watched.
    :ivar left: the share of what the VM held before that it still had in other ways when it was first watched.
    :ivar waited: seconds until then, and ``turns`` how many turns these were.
    """

    points: tuple[Point, ...]
    still: Mapping[int, int]
    left: float
    waited: float
    turns: float

    @property
    def trusted(self) -> tuple[Point, ...]:
        """Those of the numbers of ways that count."""
        return tuple(one for one in self.points if leaving.counts(self.still[one.ways], room(one.ways)))


def room(ways: int) -> float:
    """Bytes in so many ways."""
    return ways * SIZE / WAYS


def worst(points: Sequence[Point], truth: Mapping[int, float]) -> float:
    """By how much the curve is wrong where it is most wrong; 0 of no curve."""
    curve = law.size(points).curve if points else {}
    return max((abs(missed - truth[ways]) for ways, missed in curve.items()), default=0.0)


def truth(load: Sequence[Load], neighbour: Load, seed: int, first: int) -> dict[int, float]:
    """By ways, the share of references that the VM misses if it has had so many of its own from the beginning."""
    found = {}
    for ways in range(first, LAST + 1):
        with _machine() as machine:
            _start(machine, load, neighbour, seed, VM)
            _give(machine, ways)
            machine.run(BEFORE)
            before = machine.counters(VM)
            machine.run(TRUE_SECONDS)
            found[ways] = (machine.counters(VM) - before).miss_ratio
    return found


def tried(
    load: Sequence[Load],
    neighbour: Load,
    seed: int,
    place: Place,
    is_over: Callable[[Sequence[float], float], bool] = leaving.is_gone,
) -> Tried:
    """Try one VM that had no ways of its own.

    :param is_over: whether enough was waited, by what was left in each second since, and the room in its ways.
    """
    with _machine() as machine:
        task = _start(machine, load, neighbour, seed, LEFT)
        machine.set_ways(LEFT, place.mask)
        machine.set_ways(OTHERS, ALL)
        machine.run(2 * BEFORE)
        held = machine.counters(LEFT).occupancy
        _give(machine, place.first)
        machine.assign(task, rmid=VM, closid=VM)
        began = machine.counters(OTHERS).total_bytes
        left = list[float]()
        while not is_over(left, room(place.first)) and len(left) < leaving.LONGEST:
            machine.run(leaving.LOOK)
            left.append(machine.counters(LEFT).occupancy)
        turns = (machine.counters(OTHERS).total_bytes - began) / (SIZE - room(place.first))
        at_first, points, still = machine.counters(LEFT).occupancy, list[Point](), dict[int, int]()
        for ways in range(place.first, LAST + 1):
            _give(machine, ways)
            samples = list[Sample]()
            for counters in each_second(machine, VM):
                samples.append(sample(machine.seconds, counters, counted=True))
                if law.is_enough(samples):
                    break
            points.append(law.point(ways, samples))
            still[ways] = machine.counters(LEFT).occupancy
    return Tried(tuple(points), still, at_first / held if held else 0.0, len(left) * leaving.LOOK, turns)


def _machine() -> Machine:
    return Machine(
        cpus=2, l3_bytes=SIZE, l3_ways=WAYS, l2_bytes=4096, l2_ways=1, rmids=4, hz=HZ, bytes_per_cycle=4.0,
        l3_cycles=50, memory_cycles=225,
    )  # fmt: skip


def _start(machine: Machine, load: Sequence[Load], neighbour: Load, seed: int, group: int) -> Task:
    machine.start(neighbour, cpu=1, rmid=OTHERS, closid=OTHERS, seed=9)
    return machine.start(load, cpu=0, rmid=group, closid=group, seed=seed, scattered=True)


def _give(machine: Machine, ways: int) -> None:
    machine.set_ways(VM, (1 << ways) - 1)
    machine.set_ways(OTHERS, ALL & ~((1 << ways) - 1))
