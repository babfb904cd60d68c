# SPDX-License-Identifier: Apache-2.0
"""Which CPUs a simulated machine has and which caches they share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache.

    :ivar id: its number among the caches of its level, 0 or greater.
    :ivar size: bytes.
    :ivar cpus: the CPUs that share it.
    """

    id: int
    size: int
    cpus: frozenset[int]


@dataclass(frozen=True, slots=True)
class Topology:
    """The caches of a machine.

    :ivar l3: in the order of their ids.
    :ivar l2: in the order of their ids.
    :ivar l3_ways: associativity as sysfs shows it; the kernel's mask may have fewer bits.
    :ivar l2_ways: likewise.
    :ivar nodes_per_l3: into how many sub-NUMA nodes the firmware divides each socket (Intel's SNC).
    """

    l3: tuple[Cache, ...]
    l2: tuple[Cache, ...]
    l3_ways: int
    l2_ways: int
    nodes_per_l3: int = 1

    @property
    def cpus(self) -> frozenset[int]:
        """Every CPU of the machine."""
        return frozenset(cpu for cache in (*self.l3, *self.l2) for cpu in cache.cpus)

    @property
    def cpu_count(self) -> int:
        """The highest CPU number plus one (the kernel's ``nr_cpu_ids``)."""
        return max(self.cpus, default=0) + 1

    def caches(self, level: int) -> tuple[Cache, ...]:
        """The caches of level 2 or 3."""
        return self.l3 if level == 3 else self.l2

    @property
    def counted(self) -> tuple[Cache, ...]:
        """What has counters of its own: each L3 or, where sockets are divided, each node's part of one.

        Nodes are numbered through the machine, as NUMA nodes are.
        """
        if self.nodes_per_l3 == 1:
            return self.l3
        return tuple(
            Cache(index * self.nodes_per_l3 + number, cache.size // self.nodes_per_l3, part)
            for index, cache in enumerate(self.l3)
            for number, part in enumerate(_parts(cache.cpus, self.nodes_per_l3))
        )

    def l3_of(self, counted: int) -> Cache:
        """The L3 that one of :attr:`counted` is, or is a part of.

        :param counted: its id.
        """
        if self.nodes_per_l3 == 1:
            return next(cache for cache in self.l3 if cache.id == counted)
        return self.l3[counted // self.nodes_per_l3]

    def fitted(self, cpus: Iterable[int]) -> Topology:
        """A topology with these L3 caches and other CPUs, dealt out evenly and in order; each core gets its own L2.

        :param cpus: the CPUs that shall exist, usually the host's; at least one.
        """
        parts = _parts(cpus, len(self.l3))
        l3 = tuple(replace(cache, cpus=part) for cache, part in zip(self.l3, parts, strict=True))
        per_l2 = max(len(cache.cpus) for cache in self.l2)
        size = self.l2[0].size
        l2: list[Cache] = []
        for cache in l3:
            members = sorted(cache.cpus)
            for start in range(0, len(members), per_l2):
                l2.append(Cache(len(l2), size, frozenset(members[start : start + per_l2])))
        return replace(self, l3=l3, l2=tuple(l2))


def _parts(cpus: Iterable[int], count: int) -> list[frozenset[int]]:
    """The CPUs dealt out evenly and in order."""
    numbers = sorted(cpus)
    bounds = [len(numbers) * index // count for index in range(count + 1)]
    return [frozenset(numbers[bounds[index] : bounds[index + 1]]) for index in range(count)]


def regular(
    *, sockets: int, cores: int, threads: int, l3_size: int, l2_size: int, l3_ways: int, l2_ways: int
) -> Topology:
    """A machine of equal sockets whose CPUs are numbered socket by socket, core by core.

    :param l3_size: bytes of each socket's L3.
    :param l2_size: bytes of each core's L2.
    """
    per_socket = cores * threads
    l3 = tuple(
        Cache(index, l3_size, frozenset(range(index * per_socket, (index + 1) * per_socket)))
        for index in range(sockets)
    )
    l2 = tuple(
        Cache(index, l2_size, frozenset(range(index * threads, (index + 1) * threads)))
        for index in range(sockets * cores)
    )
    return Topology(l3, l2, l3_ways, l2_ways)
