# SPDX-License-Identifier: Apache-2.0
"""What one sweep over the counters found: plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from vmqos.resctrl.monitoring import Missing, Reading, Value

__all__ = [
    "EVENTS",
    "Columns",
    "GroupReading",
    "HostReading",
    "Missing",
    "PolicyName",
    "Reading",
    "Snapshot",
    "VmReading",
    "add",
    "total",
    "without",
]

LLC_OCCUPANCY = "llc_occupancy"
MBM_TOTAL = "mbm_total_bytes"
MBM_LOCAL = "mbm_local_bytes"

EVENTS = (LLC_OCCUPANCY, MBM_TOTAL, MBM_LOCAL)
"""The events that every reading has an entry for, named as resctrl's files: bytes held now, bytes moved so far."""

PolicyName = Literal["exclusive", "shared"]


def total(values: Sequence[Value]) -> Reading:
    """The sum, if each of them is a number; otherwise the first reason. No value at all: nothing counts this."""
    if not values:
        return Reading.none(Missing.NO_COUNTER)
    try:
        return Reading(sum(values))  # type: ignore[arg-type]
    except TypeError:
        return Reading.none(next(value for value in values if isinstance(value, Missing)))


def add(values: Sequence[Value], others: Sequence[Value]) -> list[Value]:
    """The counters of two groups, one by one: the sum, or the reason why there is none."""
    return [
        one if isinstance(one, Missing) else other if isinstance(other, Missing) else one + other
        for one, other in zip(values, others, strict=True)
    ]


def without(values: Sequence[Value], parts: Sequence[Sequence[Value]]) -> list[Value]:
    """The counters of a group without those of groups in it, one by one; 0 or more, or the reason why there is none."""
    found = []
    for value, *of_parts in zip(values, *parts, strict=True):
        missing = next((one for one in (value, *of_parts) if isinstance(one, Missing)), None)
        found.append(missing if missing is not None else max(value - sum(of_parts), 0))
    return found


class VmReading(NamedTuple):
    """One VM's counters.

    A named tuple, because a sweep makes one for each VM: a frozen dataclass takes several times as long to make.

    :ivar uuid: the VM's UUID.
    :ivar group: the name of its control group; empty for the default group.
    :ivar policy: what its group's name says that it was promised; ``None`` for a VM in the default group.
    :ivar ways: how many ways it was promised, by cache id; empty without promise. A cache on which an exclusive VM's
        mask follows the default group's is left out: it can't run there.
    :ivar allocated_bytes: the size of those ways together; ``None`` without promise, or if resctrl does not say.
    :ivar generation: another one means that the counters are another group's, and began anew.
    :ivar read_at: monotonic seconds, when the first of these counters were read.
    :ivar caches: the readings by cache id and event; every one of :data:`EVENTS` is there.
    :ivar totals: the sums over all caches by event, those of the packages' events included.
    :ivar nodes: the readings by cache id, sub-NUMA node and event; empty unless the sweeper was asked for them.
    :ivar packages: the readings by package id and event, where the kernel has them; each began at 0 at ``since``.
    :ivar moments: monotonic seconds, when the counters of each cache were read, by cache id; those that are left out
        were read at ``read_at``.
    :ivar parts: how many of the ways code may fill, and how many data, by cache id, where they have ways apart.
    :ivar l2_ways: how many L2 ways it was promised, by cache id.
    :ivar limits: the limits of its memory bandwidth that are in force, by cache id, in the host's
        ``bandwidth_unit``.
    :ivar since: when the sweeper first read what packages count for its group, in seconds since 1970; ``None`` where
        they count nothing.
    """

    uuid: str
    group: str
    policy: PolicyName | None
    ways: Mapping[int, int]
    allocated_bytes: int | None
    generation: str
    read_at: float
    caches: Mapping[int, Mapping[str, Reading]]
    totals: Mapping[str, Reading]
    nodes: Mapping[int, Mapping[int, Mapping[str, Reading]]] = MappingProxyType({})
    packages: Mapping[int, Mapping[str, Reading]] = MappingProxyType({})
    moments: Mapping[int, float] = MappingProxyType({})
    parts: Mapping[int, tuple[int, int]] = MappingProxyType({})
    l2_ways: Mapping[int, int] = MappingProxyType({})
    limits: Mapping[int, int] = MappingProxyType({})
    since: float | None = None


class GroupReading(NamedTuple):
    """What the tasks of a control group count that are no monitored VM's.

    Such groups and all VMs together are what a cache holds and moves.

    :ivar generation: another one means that it is another group.
    :ivar caches: the readings by cache id and event. They are differences of counters that are read one by one.
    :ivar packages: likewise by package id and event, where the kernel has them. What earlier groups with the group's
        RMID had counted is in them; the default group's is its own from the start of the machine on.
    """

    generation: str
    caches: Mapping[int, Mapping[str, Reading]]
    packages: Mapping[int, Mapping[str, Reading]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HostReading:
    """The host's own counters and what is left of its resources.

    :ivar caches: the default group's readings, which include those of the VMs that are monitored inside of it.
    :ivar totals: their sums over all caches, by event.
    :ivar packages: the default group's readings by package and event, as the kernel tells them: from the start of the
        machine on, and with those of the VMs that are monitored inside of it.
    :ivar ways: how many ways each cache has, by cache id; empty where the L3 can't be partitioned.
    :ivar ways_free: how many of them are the default group's or no group's, by cache id. The agent keeps some of these
        for the host, and says how many may be promised.
    :ivar cache_bytes: the size of each cache; empty where resctrl does not say.
    :ivar closids: how many control groups there can be, the default one included.
    :ivar closids_used: how many there are.
    :ivar rmids: how many groups of both kinds can be monitored; 0 where nothing is monitored.
    :ivar rmids_used: how many groups there are.
    :ivar events: the events that this machine counts, in ascending order.
    :ivar groups: the control groups that are no VM's by their names; the default one is ``""``. Empty unless the
        sweeper was asked for them.
    :ivar bandwidth_unit: what limits of memory bandwidth are told in, ``%`` or ``MB/s``; ``None`` where there are none.
    """

    caches: Mapping[int, Mapping[str, Reading]]
    totals: Mapping[str, Reading]
    packages: Mapping[int, Mapping[str, Reading]]
    ways: Mapping[int, int]
    ways_free: Mapping[int, int]
    cache_bytes: Mapping[int, int]
    closids: int
    closids_used: int
    rmids: int
    rmids_used: int
    events: tuple[str, ...]
    bandwidth_unit: str | None = None
    groups: Mapping[str, GroupReading] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Columns:
    """The counters of all VMs, one beside the other: as the readings have them, at a small part of the cost.

    :ivar uuids: the VMs, in the order of the columns.
    :ivar groups: the very same object as in an earlier sweep if the VMs' groups are the same.
    :ivar caches: the bytes held, those moved to and from any memory and those of the same socket, by cache id; and when
        they were read, in monotonic seconds. A column each.
    """

    uuids: Sequence[str]
    groups: object
    caches: Mapping[int, tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One sweep.

    :ivar monotonic: seconds of the monotonic clock at its beginning.
    :ivar wall: seconds since 1970 at its beginning.
    :ivar vms: every VM that has a group, by UUID.
    :ivar host: the default group, and what is left.
    :ivar sweep_seconds: how long it took.
    :ivar columns: ``None`` unless each VM has one group, whose files are kept open, and every counter of every group
        was a whole number; nor where packages count.
    """

    monotonic: float
    wall: float
    vms: Mapping[str, VmReading]
    host: HostReading
    sweep_seconds: float
    columns: Columns | None = field(default=None, repr=False, compare=False)
