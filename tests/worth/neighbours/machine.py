# SPDX-License-Identifier: Apache-2.0
"""A mix of VMs run on the lab's model of the caches, without a guest (:mod:`tests.worth.native`), second by second."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from tests.worth.native import Counters, Load, Machine, Order, Task
from tests.worth.neighbours.mixes import Mix

IDLE = Load(Order.IDLE)


@dataclass(frozen=True, slots=True)
class Run:
    """What the VMs of a mix did.

    :ivar vms: by VM, second by second; ``occupancy`` is at its end.
    :ivar evicted: how many lines were lost to whom in all: by the VM that took and the one that lost.
    """

    vms: list[list[Counters]]
    evicted: dict[tuple[int, int], int]


class Runner(Protocol):
    """What runs a mix, as :func:`run` does."""

    def __call__(self, mix: Mix, absent: Collection[int] = (), planted: bool = True) -> Run:
        """See :func:`run`."""
        ...


def remembered(only: Mix) -> Runner:
    """What runs one mix, and never runs it twice without the same VMs."""
    known: dict[tuple[tuple[int, ...], bool], Run] = {}

    def once(mix: Mix, absent: Collection[int] = (), planted: bool = True) -> Run:
        assert mix is only
        key = tuple(sorted(absent)), planted
        if key not in known:
            known[key] = run(mix, absent, planted)
        return known[key]

    return once


def run(mix: Mix, absent: Collection[int] = (), planted: bool = True) -> Run:
    """Run a mix from an empty cache on.

    The same seed makes the same accesses, whoever is absent.

    :param absent: VMs that do nothing.
    :param planted: whether the culprit does what it was planted for; else it goes on as before.
    """
    number, hardware = len(mix.vms), mix.hardware
    found: list[list[Counters]] = [[] for _ in mix.vms]
    with Machine(
        cpus=number,
        l3_bytes=hardware.size,
        l3_ways=hardware.ways,
        l2_bytes=hardware.l2_bytes,
        l2_ways=hardware.l2_ways,
        rmids=number,
        evictions=True,
        hz=hardware.hz,
        bytes_per_cycle=hardware.bytes_per_cycle,
        l3_cycles=hardware.l3_cycles,
        memory_cycles=hardware.memory_cycles,
    ) as machine:
        tasks: list[Task] = []
        for which, vm in enumerate(mix.vms):
            machine.set_ways(which, vm.mask)
            tasks.append(machine.start(IDLE, cpu=which, rmid=which, closid=which, seed=vm.seed))
        doing: list[object] = [None] * number
        before = [machine.counters(which) for which in range(number)]
        for second in range(mix.seconds):
            for which, task in enumerate(tasks):
                work = mix.work(which, second, planted)
                if which not in absent and work != doing[which]:
                    machine.change(task, work.loads)
                    doing[which] = work
            machine.run(1.0)
            for which in range(number):
                now = machine.counters(which)
                found[which].append(now - before[which])
                before[which] = now
        return Run(found, machine.evicted())
