# SPDX-License-Identifier: Apache-2.0
"""A VM that is let have one way after the other, natively, beside the truth: its stack distances meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.worth.native import Counters, Load, Machine, Order, Task
from tests.worth.size.loads import SIZE, WAYS
from vmqos.insight import size as law
from vmqos.insight.model import Counts, Sample

HZ = 1e6
"""Cycles of a second: as in :mod:`tests.worth.neighbours.machine`, which says why."""
BASE = 2
"""Ways that the VM is promised."""
OTHERS = 2
"""Ways that stay with a neighbour who streams through them."""
BEFORE = 20.0
"""Seconds for which the VM runs before anybody asks how much it needs."""
VM, NEIGHBOUR = 1, 2


@dataclass(frozen=True, slots=True)
class Sized:
    """What the law said, and the truth.

    :ivar found: what the law said.
    :ivar truth: by ways, the share of references that the VM missed, or would have missed, with so many of its own.
    :ivar seconds: for how long it was tried.
    :ivar cost: by what part it did less meanwhile than if nobody had asked; less than 0 if it did more.
    """

    found: law.Size
    truth: Mapping[int, float]
    seconds: int
    cost: float

    @property
    def worst(self) -> float:
        """By how much the curve is wrong where it is most wrong; of one without a PMU only the knee is held to it."""
        return max(abs(self.found.curve[ways] - missed) for ways, missed in self.truth.items())

    @property
    def knee(self) -> int:
        """The true one, by the law's own measure."""
        return law.knee(self.truth)


def sized(loads: Sequence[Load], seed: int, *, counted: bool = True) -> Sized:
    """Try one VM.

    :param counted: whether there is a PMU.
    """
    with _machine() as machine:
        task = _start(machine, loads, seed)
        machine.run(BEFORE)
        began, truth, points, seconds = machine.progress(task).instructions, dict[int, float](), [], 0
        for ways in range(BASE, WAYS - OTHERS + 1):
            machine.set_ways(VM, (1 << ways) - 1)
            before, samples = machine.curve(VM), list[Sample]()
            for counters in each_second(machine, VM):
                seconds += 1
                samples.append(sample(float(seconds), counters, counted=counted))
                if law.is_enough(samples):
                    break
            points.append(law.point(ways, samples))
            curve = machine.curve(VM) - before
            truth[ways] = curve.misses(ways) / curve.accesses
        done = machine.progress(task).instructions - began
    return Sized(law.size(points), truth, seconds, 1 - done / _undisturbed(loads, seed, seconds))


def _undisturbed(loads: Sequence[Load], seed: int, seconds: int) -> int:
    """What the same VM does in so many seconds if nobody asks."""
    with _machine() as machine:
        task = _start(machine, loads, seed)
        machine.run(BEFORE)
        before = machine.progress(task).instructions
        machine.run(float(seconds))
        return machine.progress(task).instructions - before


def _machine() -> Machine:
    return Machine(
        cpus=2,
        l3_bytes=SIZE,
        l3_ways=WAYS,
        l2_bytes=4096,
        l2_ways=1,
        rmids=4,
        curves=True,
        hz=HZ,
        bytes_per_cycle=4.0,
        l3_cycles=50,
        memory_cycles=225,
    )


def _start(machine: Machine, loads: Sequence[Load], seed: int) -> Task:
    machine.set_ways(VM, (1 << BASE) - 1)
    machine.set_ways(NEIGHBOUR, ((1 << OTHERS) - 1) << (WAYS - OTHERS))
    machine.start(Load(Order.ENDLESS, instructions=40, overlap=4), cpu=1, rmid=NEIGHBOUR, closid=NEIGHBOUR, seed=9)
    return machine.start(loads, cpu=0, rmid=VM, closid=VM, seed=seed, scattered=True)


def each_second(machine: Machine, rmid: int) -> Iterator[Counters]:
    """What was counted in each second, for ever."""
    while True:
        before = machine.counters(rmid)
        machine.run(1.0)
        yield machine.counters(rmid) - before


def sample(time: float, counters: Counters, *, counted: bool) -> Sample:
    """A second as insight has it.

    :param counted: whether there is a PMU.
    """
    counts = Counts(counters.cycles, counters.instructions, counters.llc_references, counters.llc_misses)
    return Sample(time, {0: float(counters.occupancy)}, float(counters.total_bytes), counts if counted else None)
