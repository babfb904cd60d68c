# SPDX-License-Identifier: Apache-2.0
"""What a limit of memory bandwidth (``hw:mem_bandwidth_*``) on its neighbour is worth to a VM, natively: no guest."""

from __future__ import annotations

from typing import Any

from tests.worth.channel import NOISE, VICTIM, machine, start_noise
from tests.worth.native import Load, Order

HZ = 1e6
"""Cycles of a second: a limited CPU then gets its lines nearly one by one, and not hundreds in a row."""
CHANNEL = 16.0
"""Bytes a cycle that memory moves: what nine or ten CPUs can draw that stream, as in the kernel's example."""
VICTIMS = {
    "follows pointers": Load(Order.SHUFFLED, 64 << 20, instructions=20),
    "streams": Load(Order.ENDLESS, instructions=8, overlap=10),
}
CULPRIT = Load(Order.ENDLESS, instructions=8, overlap=10)
VCPUS = (10, 20, 40)
"""Of the culprit; the kernel's example has 20 threads."""
PERCENT = {"50 %": 0.5, "30 %": 0.3, "10 %": 0.1}
"""Limits of each CPU, as parts of what a CPU can draw."""
IN_ALL = 0.5
"""The limit in MB/s: all vCPUs together get this part of what memory moves."""
OWN = {VICTIM: 0xFF00, NOISE: 0x00FF}
WARM, MEASURED = 0.1, 0.5
"""Seconds."""


def run() -> dict[str, Any]:
    """By victim, number of the culprit's vCPUs and limit: how long an access takes, and how much is moved."""
    draw = _measure(None, 1, None)["moved"]
    return {
        "channel": CHANNEL,
        "draw": draw,
        "victims": {
            name: {
                "alone": _measure(victim, 0, None),
                "beside": {str(vcpus): beside(name, vcpus, draw) for vcpus in VCPUS},
            }
            for name, victim in VICTIMS.items()
        },
    }


def beside(victim: str, vcpus: int, draw: float) -> dict[str, dict[str, float]]:
    """A victim beside a culprit of so many vCPUs, by the culprit's limit.

    :param draw: bytes a cycle that one of them can draw from an idle memory.
    """
    limits = {"none": None} | {name: part * draw for name, part in PERCENT.items()} | {"MB/s": IN_ALL * CHANNEL / vcpus}
    return {name: _measure(VICTIMS[victim], vcpus, limit) for name, limit in limits.items()}


def _measure(victim: Load | None, vcpus: int, limit: float | None) -> dict[str, float]:
    """One case. Both VMs have half of the ways for themselves.

    :param limit: bytes a cycle that each CPU of the culprit gets.
    :returns: ``cycles`` of an access of the victim, of which it ``waited`` for the channel, its ``miss_ratio``, and
        bytes a cycle that the culprit ``moved``.
    """
    with machine(cpus=vcpus + 1, hz=HZ, channel=CHANNEL, limit=limit) as made:
        for closid, mask in OWN.items():
            made.set_ways(closid, mask)
        if victim:
            made.start(victim, cpu=0, rmid=VICTIM, closid=VICTIM)
        start_noise(made, CULPRIT, vcpus)
        made.run(WARM)
        before = made.counters(VICTIM), made.counters(NOISE)
        made.run(MEASURED)
        own, noise = made.counters(VICTIM) - before[0], made.counters(NOISE) - before[1]
    found = {"moved": noise.total_bytes / (MEASURED * HZ)}
    if victim:
        accesses = own.instructions / victim.instructions
        found |= {
            "cycles": own.cycles / accesses,
            "waited": own.queued_cycles / accesses,
            "miss_ratio": own.miss_ratio,
        }
    return {name: round(value, 4) for name, value in found.items()}
