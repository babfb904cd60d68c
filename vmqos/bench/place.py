# SPDX-License-Identifier: Apache-2.0
"""Where the experiment takes place: an L3 cache, a core for the victim, other cores for its neighbours."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from vmqos.bench import exceptions
from vmqos.resctrl import topology

SYSFS_CPU = topology.SYSFS_CPU


@dataclass(frozen=True, slots=True)
class Place:
    """Where the experiment takes place.

    :ivar cache: the L3's id.
    :ivar size: its bytes; ``None`` where the kernel does not say.
    :ivar l2_size: the bytes of a core's own L2 cache; 0 where the kernel does not say.
    :ivar victim: the CPUs of the victim.
    :ivar neighbors: the CPUs of its neighbours.
    :ivar is_real: whether these CPUs share that cache; ``False`` where a simulated machine has no two cores here.
    """

    cache: int
    size: int | None
    l2_size: int
    victim: frozenset[int]
    neighbors: frozenset[int]
    is_real: bool = True


def cores(cpus: Iterable[int], sysfs_cpu: str = SYSFS_CPU) -> list[frozenset[int]]:
    """The CPUs of each core; the core with the lowest CPU comes first.

    A CPU counts as a core of its own where the kernel does not say which CPUs share its core.
    """
    found = set()
    for cpu in cpus:
        try:
            siblings = topology.read_page(f"{sysfs_cpu}/cpu{cpu}/topology/thread_siblings_list")
            found.add(topology.parse_cpu_list(siblings) | {cpu})
        except ValueError:
            found.add(frozenset({cpu}))
    return sorted(found, key=min)


def choose(
    caches: Mapping[int, topology.Cache],
    l2_size: int,
    usable: Collection[int],
    wanted: int | None,
    count: int,
    *,
    victim: Collection[int] = (),
    neighbors: Collection[int] = (),
    simulated: bool = False,
    sysfs_cpu: str = SYSFS_CPU,
) -> Place:
    """Choose the first cache, or the one that is wanted, that has two cores for us.

    The victim gets the last core, for much of a host's own work is done on the first ones; the neighbours get one CPU
    of each core before it. Siblings of the victim's CPU stay free of them.

    :param caches: the L3 caches by id.
    :param usable: the CPUs that may be used.
    :param wanted: the id of the only cache that will do.
    :param count: how many neighbours there are at most, 1 or more.
    :param victim: the CPUs of a victim that has its place already, all of one cache.
    :param neighbors: likewise.
    :param simulated: whether other CPUs will do where the simulated caches have too few.
    :raises vmqos.bench.exceptions.NoSuchCache: if there is none of that id.
    :raises vmqos.bench.exceptions.TooFewCores: if no cache has two cores.
    """
    if wanted is not None and wanted not in caches:
        raise exceptions.NoSuchCache(wanted=wanted, known=", ".join(map(str, caches)) or "none")
    candidates = [caches[wanted]] if wanted is not None else list(caches.values())
    for cache in candidates:
        found = _on(cache.cpus & set(usable), count, frozenset(victim), frozenset(neighbors), sysfs_cpu)
        if found is not None:
            return Place(cache.id, cache.size, l2_size, *found)
    if simulated and candidates:
        found = _on(set(usable), count, frozenset(victim), frozenset(neighbors), sysfs_cpu)
        if found is not None:
            return Place(candidates[0].id, candidates[0].size, l2_size, *found, is_real=False)
    text = "; ".join(
        f"cache {cache.id} has {len(cores(cache.cpus & set(usable), sysfs_cpu))} of them" for cache in candidates
    )
    raise exceptions.TooFewCores(found=text or "the kernel tells of no L3 cache with an id")


def _on(
    cpus: Collection[int], count: int, victim: frozenset[int], neighbors: frozenset[int], sysfs_cpu: str
) -> tuple[frozenset[int], frozenset[int]] | None:
    """The CPUs of victim and neighbours among these; ``None`` where there are too few cores."""
    if (victim or neighbors) and not (victim | neighbors) & set(cpus):
        return None
    # The cores that a VM may run on are its alone here; and a sibling shares more than the cache.
    free = [core for core in cores(cpus, sysfs_cpu) if not core & (victim | neighbors)]
    if not victim:
        if not free:
            return None
        victim = frozenset({min(free.pop() & set(cpus))})
    if not neighbors:
        neighbors = frozenset(min(core & set(cpus)) for core in free[-count:])
    return (victim, neighbors) if neighbors else None


def own_cpus() -> frozenset[int]:
    """The CPUs that this process may use."""
    return frozenset(os.sched_getaffinity(0))
