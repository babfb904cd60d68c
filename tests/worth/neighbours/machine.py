# SPDX-License-Identifier: Apache-2.0
"""A mix of VMs run on the lab's model of the caches, without a guest (:mod:`tests.worth.native`), second by second.

Time and sizes are scaled, so that a mix of 85 seconds takes less than one. The cache is a 64th of a large server's, a
second is a 2 500th of one. Beside each other that is the harder case: what a cache holds is replaced 40 times more
slowly than in hardware, so effects take longer to be seen.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tests.worth.native import Counters, Load, Machine, Order, Task
from tests.worth.neighbours.mixes import SIZE, WAYS, Mix

HZ = 1e6
"""Cycles of a second of a mix."""
L3_CYCLES, MEMORY_CYCLES = 50, 225
BYTES_PER_CYCLE = 4.0
"""Of the memory channel: what 3 to 6 of a mix's streaming VMs can fill, as on a server."""
CHANNEL = BYTES_PER_CYCLE * HZ
"""The same in bytes a second."""
IDLE = Load(Order.IDLE)


@dataclass(frozen=True, slots=True)
class Run:
    """What the VMs of a mix did.

    :ivar vms: by VM, second by second; ``occupancy`` is at its end.
    :ivar evicted: how many lines were lost to whom in all: by the VM that took and the one that lost.
    """

    vms: list[list[Counters]]
    evicted: dict[tuple[int, int], int]


def run(mix: Mix, absent: Collection[int] = (), planted: bool = True) -> Run:
    """Run a mix from an empty cache on.

    The same seed makes the same accesses, whoever is absent.

    :param absent: VMs that do nothing.
    :param planted: whether the culprit does what it was planted for; else it goes on as before.
    """
    number = len(mix.vms)
    found: list[list[Counters]] = [[] for _ in mix.vms]
    with Machine(
        cpus=number,
        l3_bytes=SIZE,
        l3_ways=WAYS,
        l2_bytes=4096,
        l2_ways=1,
        rmids=number,
        evictions=True,
        hz=HZ,
        bytes_per_cycle=BYTES_PER_CYCLE,
        l3_cycles=L3_CYCLES,
        memory_cycles=MEMORY_CYCLES,
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
