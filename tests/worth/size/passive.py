# SPDX-License-Identifier: Apache-2.0
"""A VM that shares all ways with a neighbour who presses more and less, natively, beside the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.worth.native import Load, Machine, Order
from tests.worth.size.loads import SIZE, WAYS
from tests.worth.size.stepping import HZ, sample
from vmqos.insight import passive as law
from vmqos.insight import size
from vmqos.insight.passive import Passive

PRESSURE = (1_000_000, 8000, 1000, 300, 100, 40, 300, 2000)
"""Instructions between two lines that the neighbour streams through, one after the other."""
EACH = 14.0
"""Seconds for each of them; all of them together are less than an agent remembers."""
BEFORE = 5.0
VM, NEIGHBOUR = 1, 2
ALL = (1 << WAYS) - 1


@dataclass(frozen=True, slots=True)
class Watched:
    """What the law said of one VM, and the truth.

    :ivar truth: by ways, the share of its references that it would have missed with so many of its own.
    """

    found: Passive
    truth: Mapping[int, float]

    @property
    def worst(self) -> float:
        """By how much the curve is wrong where it is most wrong; 0 where nothing is told."""
        return max((abs(missed - self.truth[ways]) for ways, missed in self.found.curve.items()), default=0.0)

    @property
    def knee(self) -> int:
        """The true one, of those numbers of ways that are told."""
        return size.knee({ways: self.truth[ways] for ways in self.found.curve})


def watched(loads: Sequence[Load], seed: int) -> Watched:
    """Watch one VM."""
    pressure = [Load(Order.ENDLESS, instructions=pace, overlap=4, seconds=EACH) for pace in PRESSURE]
    with Machine(
        cpus=2, l3_bytes=SIZE, l3_ways=WAYS, l2_bytes=4096, l2_ways=1, rmids=4, curves=True, hz=HZ, bytes_per_cycle=4.0,
        l3_cycles=50, memory_cycles=225,
    ) as machine:  # fmt: skip
        for group in (VM, NEIGHBOUR):
            machine.set_ways(group, ALL)
        machine.start(pressure, cpu=1, rmid=NEIGHBOUR, closid=NEIGHBOUR, seed=9)
        machine.start(loads, cpu=0, rmid=VM, closid=VM, seed=seed, scattered=True)
        machine.run(BEFORE)
        before, samples = machine.curve(VM), []
        for second in range(int(EACH * len(PRESSURE) - BEFORE)):
            then = machine.counters(VM)
            machine.run(1.0)
            samples.append(sample(float(second), machine.counters(VM) - then, counted=True))
        curve = machine.curve(VM) - before
    truth = {ways: curve.misses(ways) / curve.accesses for ways in range(WAYS + 1)}
    return Watched(law.passive(samples, WAYS, SIZE / WAYS), truth)
