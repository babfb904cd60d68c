# SPDX-License-Identifier: Apache-2.0
"""The registers of allocation, by their numbers in Intel's and AMD's manuals.

Written down anew, not taken from the simulator: it is what is tried here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vmqos.simulator.hardware.profiles import Profile

L3_CDP = 0xC81
L2_CDP = 0xC82
L3_EXTENDED = 0xC000_03FF
"""AMD's: bit 1 confines devices to the ways of the highest class."""


@dataclass(frozen=True, slots=True)
class Place:
    """A register of a cache, and a CPU that can read it."""

    cache: str
    cpu: int
    number: int


def mask(level: int, closid: int) -> int:
    """The number of the register with a class's mask."""
    return {3: 0xC90, 2: 0xD10}[level] + closid


def data_mask(level: int, closid: int) -> int:
    """The same for data, under CDP."""
    return mask(level, 2 * closid)


def code_mask(level: int, closid: int) -> int:
    """The same for code, under CDP."""
    return mask(level, 2 * closid + 1)


def intel_delay(closid: int) -> int:
    """The number of the register with by how many per cent a class is delayed."""
    return 0xD50 + closid


def amd_limit(closid: int) -> int:
    """The number of the register with the limit of a class in 1/8 GB/s."""
    return 0xC000_0200 + closid


def slow_limit(closid: int) -> int:
    """The same for slow memory."""
    return 0xC000_0280 + closid


def event_configuration(index: int) -> int:
    """The number of the register that says what counter ``index`` counts: 0 the total, 1 the local traffic."""
    return 0xC000_0400 + index


def registers_of(profile: Profile) -> Iterator[Place]:
    """Every register of allocation that a machine has."""
    for level, allocation in ((3, profile.l3), (2, profile.l2)):
        for cache in profile.topology.caches(level) if allocation else ():
            cpu, name = min(cache.cpus), f"L{level} {cache.id}"
            assert allocation is not None
            for closid in range(allocation.num_closids):
                yield Place(name, cpu, mask(level, closid))
            if allocation.cdp:
                yield Place(name, cpu, L3_CDP if level == 3 else L2_CDP)
    extended = profile.l3 is not None and profile.l3.io_alloc
    for cache in profile.topology.l3 if extended else ():
        yield Place(f"L3 {cache.id}", min(cache.cpus), L3_EXTENDED)
    slow = profile.slow_bandwidth
    for cache in profile.topology.l3 if slow else ():
        assert slow is not None
        for closid in range(slow.num_closids):
            yield Place(f"SMBA {cache.id}", min(cache.cpus), slow_limit(closid))
    bandwidth = profile.bandwidth
    for cache in profile.topology.l3 if bandwidth else ():
        assert bandwidth is not None
        for closid in range(bandwidth.num_closids):
            number = intel_delay(closid) if bandwidth.linear else amd_limit(closid)
            yield Place(f"MB {cache.id}", min(cache.cpus), number)
