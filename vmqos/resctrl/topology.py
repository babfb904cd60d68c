# SPDX-License-Identifier: Apache-2.0
"""Which CPUs share which cache, from sysfs; resctrl's cache ids are the ``id`` files there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SYSFS_CPU = "/sys/devices/system/cpu"

_CPU = re.compile(r"cpu([0-9]+)")
_INDEX = re.compile(r"index[0-9]+")
_NUMBER = re.compile(r"[0-9]{1,10}")
_SIZE = re.compile(r"([0-9]{1,10})([KMG]?)")
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
"""A kernel has at most 8192 CPUs (``NR_CPUS`` of x86). A few bytes must not stand for a million."""
_PAGE = 65536
"""Bytes: more than a file of sysfs can have, which is one page (``sysfs_emit``)."""
MOST_NAMED = 1 << 17
"""CPUs that all ranges of a list may name together: it may be the lists of several groups, joined."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Cache:
    """One instance of a cache.

    :ivar id: the id that resctrl knows it by.
    :ivar cpus: the online CPUs that share it.
    :ivar size: bytes; ``None`` where the kernel does not say.
    """

    id: int
    cpus: frozenset[int]
    size: int | None


@dataclass(frozen=True, slots=True)
class CacheTopology:
    """Where the L3s and the L2s are.

    :ivar cpus: the CPUs of each L3, by cache id; empty where sysfs does not say.
    :ivar sizes: bytes of each L3, by cache id.
    :ivar l2: the CPUs of each L2, by cache id.
    :ivar l2_sizes: bytes of each L2, by cache id.
    """

    cpus: Mapping[int, frozenset[int]] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    l2: Mapping[int, frozenset[int]] = field(default_factory=dict)
    l2_sizes: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def read(cls, sysfs_cpu: str) -> CacheTopology:
        """What sysfs says now."""
        l3, l2 = read_caches(3, sysfs_cpu), read_caches(2, sysfs_cpu)
        return cls(
            {cache: found.cpus for cache, found in l3.items()},
            {cache: found.size for cache, found in l3.items() if found.size is not None},
            {cache: found.cpus for cache, found in l2.items()},
            {cache: found.size for cache, found in l2.items() if found.size is not None},
        )

    def caches_of(self, cpus: frozenset[int]) -> frozenset[int]:
        """Ids of the L3s that one of these CPUs fills."""
        return frozenset(cache for cache, members in self.cpus.items() if members & cpus)

    def cores_of(self, affinities: Iterable[frozenset[int]]) -> frozenset[int]:
        """Ids of the L2s of threads that are pinned; none where one of them may run on the CPUs of several L2s.

        :param affinities: the CPUs that each thread may run on.
        """
        found = [{cache for cache, members in self.l2.items() if members & cpus} for cpus in affinities]
        return frozenset().union(*found) if all(len(cores) == 1 for cores in found) else frozenset()


def read_caches(level: int, sysfs_cpu: str = SYSFS_CPU) -> dict[int, Cache]:
    """The data or unified caches of one level by id.

    A CPU that is offline or has no ``cache/`` directory is in none of them. Nor is one whose cache has no ``id``: a
    kernel or machine without that has no resctrl for this cache either, and a guessed id might name another cache.

    :param level: 1 to 3.
    """
    found: dict[int, Cache] = {}
    seen = set[int]()
    for cpu in _numbers(sysfs_cpu, _CPU):
        if cpu not in seen:
            cache = _cache_of_cpu(f"{sysfs_cpu}/cpu{cpu}/cache", cpu, level)
            if cache is not None:
                before = found.get(cache.id)
                cpus = cache.cpus | before.cpus if before else cache.cpus
                found[cache.id] = Cache(cache.id, cpus, cache.size)
                seen |= cache.cpus
    return dict(sorted(found.items()))


def l3_of_cpus(sysfs_cpu: str = SYSFS_CPU) -> dict[int, frozenset[int]]:
    """The CPUs of each L3 by cache id; see :func:`read_caches`."""
    return {cache.id: cache.cpus for cache in read_caches(3, sysfs_cpu).values()}


def cache_sizes(sysfs_cpu: str = SYSFS_CPU, level: int = 3) -> dict[int, int]:
    """The size of each cache of one level in bytes, by cache id, where the kernel says it."""
    return {cache.id: cache.size for cache in read_caches(level, sysfs_cpu).values() if cache.size is not None}


def online_cpus(sysfs_cpu: str = SYSFS_CPU) -> str:
    """The CPUs that are online as a list in the kernel's format, to see at little cost whether they are still the same.

    Empty where the kernel does not say.
    """
    return read_page(f"{sysfs_cpu}/online")


def parse_cpu_list(text: str) -> frozenset[int]:
    """The CPUs of a list in the kernel's format, such as ``0-3,8``; an empty text is no CPU.

    :raises ValueError: if ``text`` is no such list, has a range that runs backwards, or names more than
        :data:`MOST_NAMED` CPUs.
    """
    cpus, named = set[int](), 0
    for part in filter(None, text.strip().split(",")):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"no range of CPUs: {part!r}")
        first, last = int(found[1]), int(found[2] or found[1])
        named += last - first + 1
        if first > last or named > MOST_NAMED:
            raise ValueError(f"a range that runs backwards, or too many CPUs: {part!r}")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def _cache_of_cpu(directory: str, cpu: int, level: int) -> Cache | None:
    try:
        indexes = sorted(filter(_INDEX.fullmatch, os.listdir(directory)))
    except OSError:
        return None
    for index in indexes:
        path = f"{directory}/{index}"
        if read_page(f"{path}/level") == str(level) and read_page(f"{path}/type") != "Instruction":
            cache_id = read_page(f"{path}/id")
            if not _NUMBER.fullmatch(cache_id):
                return None
            return Cache(int(cache_id), _shared_cpus(f"{path}/shared_cpu_list", cpu), _size(read_page(f"{path}/size")))
    return None


def _shared_cpus(path: str, cpu: int) -> frozenset[int]:
    try:
        return parse_cpu_list(read_page(path)) | {cpu}
    except ValueError:
        return frozenset({cpu})


def _size(text: str) -> int | None:
    parsed = _SIZE.fullmatch(text)
    return int(parsed[1]) * _UNITS[parsed[2]] if parsed else None


def _numbers(directory: str, pattern: re.Pattern[str]) -> list[int]:
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return sorted(int(match[1]) for match in map(pattern.fullmatch, names) if match)


def read_page(path: str) -> str:
    """The text of a file of sysfs, without blanks around it; empty if there is none."""
    try:
        with open(path, "rb") as file:
            return file.read(_PAGE).decode("ascii", errors="replace").strip()
    except OSError:
        return ""
