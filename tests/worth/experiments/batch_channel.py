# SPDX-License-Identifier: Apache-2.0
"""The batch VM of 2016 again, with memory's bandwidth in it, natively: no guest (:mod:`.capped_batch` is in one)."""

from __future__ import annotations

from typing import Any

from tests.worth.channel import NOISE, VICTIM, gb_per_second, machine, start_noise
from tests.worth.native import Load, Machine, Order, Task

CACHE = 4 << 20
SIZES = {"fits": CACHE // 2, "does not fit": 2 * CACHE}
"""Bytes of the benchmark's two arrays together, as in :mod:`.capped_batch`."""
LINE = 64
BATCH = Load(Order.SEQUENTIAL, 4 * CACHE, instructions=8, overlap=10)
"""What each vCPU of the batch VM does."""
VCPUS = (1, 4)
"""Of the batch VM. That of :mod:`.capped_batch` has one."""
CHANNELS = {"any number": None, "8 GB/s": 2.0}
"""Bytes a cycle that memory moves. The benchmark and one vCPU of the batch VM would move 17 GB/s together."""
LIMIT = 0.1
"""Part of what a CPU can draw: ``hw:mem_bandwidth_percent=10``, the least that there is on most processors."""
CASES = {"free": (False, False), "one way": (True, False), "one way, limited": (True, True)}
"""Whether the batch VM is in one way, and whether its memory bandwidth is limited."""
HZ = 1e7
STEP = 0.005
"""Seconds after which is looked how far the benchmark got."""


def benchmark(size: int) -> Load:
    """It copies one half of its memory to the other: half of the lines that it accesses change."""
    return Load(Order.SEQUENTIAL, size, instructions=8, overlap=10, stores=0.5)


def run() -> dict[str, Any]:
    """The benchmark's bandwidth in MB/s: by its size, the batch VM's vCPUs, the channel, and what the batch VM has."""
    of_one = draw()
    return {
        name: {str(vcpus): {of: cases(name, vcpus, of, of_one) for of in CHANNELS} for vcpus in VCPUS} for name in SIZES
    }


def draw() -> float:
    """Bytes a cycle that one vCPU of the batch VM can draw from an idle memory."""
    with machine(cpus=2, hz=HZ, channel=None, limit=None) as made:
        start_noise(made, BATCH, 1)
        made.run(0.1)
        counted = made.counters(NOISE)
    return counted.total_bytes / counted.cycles


def cases(name: str, vcpus: int, channel: str, of_one: float) -> dict[str, dict[str, float]]:
    """All cases of one benchmark, batch VM and channel.

    :param of_one: what :func:`draw` says.
    """
    return {
        case: _measure(benchmark(SIZES[name]), vcpus, CHANNELS[channel], capped, LIMIT * of_one if limited else None)
        for case, (capped, limited) in CASES.items()
    }


def _measure(load: Load, vcpus: int, channel: float | None, capped: bool, limit: float | None) -> dict[str, float]:
    """One case: some rounds of the benchmark, from empty caches on."""
    with machine(cpus=vcpus + 1, hz=HZ, channel=channel, limit=limit, sample=3) as made:
        if capped:
            made.set_ways(VICTIM, 0xFFFE)
            made.set_ways(NOISE, 0x0001)
        stream = made.start(load, cpu=0, rmid=VICTIM, closid=VICTIM)
        start_noise(made, BATCH, vcpus)
        _go_on(made, stream, 2 * load.size // LINE)
        before, done = (made.counters(VICTIM), made.counters(NOISE)), made.progress(stream)
        _go_on(made, stream, 6 * load.size // LINE)
        own, batch = made.counters(VICTIM) - before[0], made.counters(NOISE) - before[1]
        did = made.progress(stream) - done
    found = {
        "mb_per_second": 1000 * gb_per_second(LINE * did.accesses / did.cycles),
        "miss_ratio": own.miss_ratio,
        "batch_miss_ratio": batch.miss_ratio,
        "batch_moved": gb_per_second(batch.total_bytes / did.cycles),
    }
    return {of: round(value, 4) for of, value in found.items()}


def _go_on(made: Machine, stream: Task, accesses: int) -> None:
    """Until the benchmark has made so many accesses more."""
    until = made.progress(stream).accesses + accesses
    while made.progress(stream).accesses < until:
        made.run(STEP)
