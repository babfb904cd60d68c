# SPDX-License-Identifier: Apache-2.0
"""Letting the counters move with what the host's tasks do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmqos.simulator.files.state import Mounted
from vmqos.simulator.hardware.cache_model import Demand, step
from vmqos.simulator.hardware.lasting import Hardware
from vmqos.simulator.hardware.package_counters import grown
from vmqos.simulator.hardware.resources import UNLIMITED_MBPS, Resource, Use
from vmqos.simulator.hardware.tasks import DEFAULT
from vmqos.simulator.hardware.topology import Cache

INTERVAL = 0.25
"""Seconds between two looks at the tasks: a sweep over many counters takes one."""
_AMD_UNIT = 1e9 / 8
_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class _Work:
    """What a task, or all tasks of a process, did in one cache, or in one node's part of it."""

    closid: int
    rmid: int
    seconds: float
    resident: float


def sample(hardware: Hardware, mounted: Mounted) -> None:
    """Bring the counters up to date, unless that was done a moment ago."""
    now = hardware.clock()
    elapsed = now - hardware.sampled_at
    if elapsed < INTERVAL:
        return
    hardware.sampled_at = now
    hardware.members.settle()
    counted = hardware.profile.topology.counted
    work: dict[int, list[_Work]] = {part.id: [] for part in counted}
    seen: dict[str, float] = {}
    for path, closid, rmid in _units(hardware):
        usage = hardware.processes.usage(path)
        if usage is None:
            continue
        seen[path] = usage.seconds
        # What is new has done all its work since; the first time, what is old has done it long ago.
        new_to_us = max(usage.seconds - elapsed, 0.0) if hardware.seconds_seen else usage.seconds
        before = hardware.seconds_seen.get(path, new_to_us)
        seconds = min(max(usage.seconds - before, 0.0), elapsed * len(hardware.online))
        if seconds:
            if (closid, rmid) == DEFAULT:
                closid, rmid = _class_of_cpu(mounted, usage.cpu)
            work[_part_of(counted, usage.cpu).id].append(_Work(closid, rmid, seconds, usage.resident))
    hardware.seconds_seen = seen
    for part in counted:
        _step(hardware, mounted, part, work[part.id], elapsed)


def _units(hardware: Hardware) -> Iterator[tuple[str, int, int]]:
    """What to look at: a process where all its threads are of one class, else each thread."""
    for pid, threads in hardware.processes.processes().items():
        classes = {hardware.members.of(tid) for tid in threads}
        if len(classes) == 1:
            yield str(pid), *classes.pop()
        else:
            for tid in threads:
                yield f"{pid}/task/{tid}", *hardware.members.of(tid)


def _part_of(counted: Sequence[Cache], cpu: int) -> Cache:
    return next((part for part in counted if cpu in part.cpus), counted[cpu % len(counted)])


def _class_of_cpu(mounted: Mounted, cpu: int) -> tuple[int, int]:
    """The class and RMID that a CPU gives to tasks of the default group."""
    for group in mounted.groups:
        if cpu in group.cpus:
            child = next((child for child in group.children if cpu in child.cpus), group)
            return child.closid, child.rmid
    return DEFAULT


def _step(hardware: Hardware, mounted: Mounted, part: Cache, work: list[_Work], elapsed: float) -> None:
    cache = hardware.profile.topology.l3_of(part.id)
    together: dict[tuple[int, int], tuple[float, float]] = {}
    for one in work:
        seconds, resident = together.get((one.closid, one.rmid), (0.0, 0.0))
        together[one.closid, one.rmid] = (seconds + one.seconds, resident + one.resident)
    demands = []
    for (closid, rmid), (seconds, resident) in together.items():
        throttle, limit = _bandwidth(hardware, mounted, cache, closid)
        demands.append(Demand(rmid, _mask(hardware, cache, closid), resident, seconds, throttle, limit))
        hardware.counters.counter(rmid, part.id)
    ways = hardware.profile.l3.ways if hardware.profile.l3 else hardware.profile.topology.l3_ways
    before = {demand.rmid: hardware.counters.counter(demand.rmid, part.id).total for demand in demands}
    step(hardware.counters.held(part.id), demands, ways, part.size, elapsed)
    for rmid, total in before.items():
        seconds = sum(demand.seconds for demand in demands if demand.rmid == rmid)
        loaded = hardware.counters.counter(rmid, part.id).total - total
        hardware.package_counters.add(rmid, cache.id, grown(seconds, loaded))


def _mask(hardware: Hardware, cache: Cache, closid: int) -> int:
    resource = _resource(hardware, "L3")
    if resource is None:
        return (1 << hardware.profile.topology.l3_ways) - 1
    domain = next((domain for domain in resource.domains if domain.cache is cache), None)
    if domain is None:
        return resource.default
    return _values(resource, domain.values, closid)


def _values(resource: Resource, values: Mapping[tuple[int, Use], int], closid: int) -> int:
    found = [values[closid, use] for use in Use if (closid, use) in values]
    mask = 0
    for value in found:
        mask |= value
    return mask if found else resource.default


def _bandwidth(hardware: Hardware, mounted: Mounted, cache: Cache, closid: int) -> tuple[float, float]:
    """The share of the bandwidth and the bytes per second that a class is let have."""
    resource, allocation = _resource(hardware, "MB"), hardware.profile.bandwidth
    domain = next((domain for domain in resource.domains if domain.cache is cache), None) if resource else None
    if resource is None or allocation is None or domain is None:
        return 1.0, math.inf
    if mounted.options.mba_mbps:
        limit = domain.mbps.get(closid, UNLIMITED_MBPS)
        return 1.0, math.inf if limit == UNLIMITED_MBPS else float(limit * _MEGABYTE)
    value = resource.value(domain, closid, Use.BOTH)
    if allocation.linear:
        return value / allocation.max, math.inf
    return 1.0, math.inf if value == allocation.max else value * _AMD_UNIT


def _resource(hardware: Hardware, name: str) -> Resource | None:
    return next((resource for resource in hardware.resources if resource.name == name), None)
