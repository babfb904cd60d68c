# SPDX-License-Identifier: Apache-2.0
"""What experiments about memory's channel have in common: they are native, and have the weights of the whole report."""

from __future__ import annotations

import random

from tests.worth import cost
from tests.worth.native import Load, Machine

L3_CYCLES = round(cost.L3_NS / cost.INSTRUCTION_NS)
MEMORY_CYCLES = round(cost.MEMORY_NS / cost.INSTRUCTION_NS)
LEAST = 10
"""Per cent that a class can be limited to at least."""
VICTIM, NOISE = 1, 2
"""RMIDs and CLOSIDs: of the VM that has CPU 0, and of the VM beside it."""


def gb_per_second(bytes_per_cycle: float) -> float:
    """GB/s of the processor that the report's weights are those of: a cycle is the time of an instruction."""
    return bytes_per_cycle / cost.INSTRUCTION_NS


def machine(*, cpus: int, hz: float, channel: float | None, limit: float | None, sample: int = 0) -> Machine:
    """A machine with the guests' caches: 4 MiB in 16 ways, and 64 KiB for each CPU.

    :param hz: cycles of a second of the machine. A CPU that is limited gets its lines in bursts of up to 0.2 ms.
    :param channel: bytes a cycle that memory moves; ``None``: any number.
    :param limit: bytes a cycle that each CPU of ``NOISE`` gets from memory at most; ``None``: any number.
    """
    made = Machine(
        cpus=cpus,
        l2_bytes=64 << 10,
        l2_ways=16,
        hz=hz,
        sample=sample,
        bytes_per_cycle=channel,
        l3_cycles=L3_CYCLES,
        memory_cycles=MEMORY_CYCLES,
        # What 100 per cent are, of which the class gets the least.
        bandwidth=round(100 / LEAST * (limit or 1.0) * hz),
    )
    if limit is not None:
        made.set_bandwidth(NOISE, LEAST)
    return made


def start_noise(of: Machine, load: Load, vcpus: int) -> None:
    """Start the vCPUs of ``NOISE`` on CPUs from 1 on, each with memory of its own.

    They begin at moments by chance. Were it at the same one, vCPUs that are limited alike would ask for their lines at
    the same moments for ever, and wait for each other where the channel is free most of the time.
    """
    chance = random.Random(vcpus)
    for cpu in range(1, vcpus + 1):
        of.start(load, cpu=cpu, rmid=NOISE, closid=NOISE)
        of.run(chance.uniform(0, 1000) / of.hz)
