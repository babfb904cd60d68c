# SPDX-License-Identifier: Apache-2.0
"""The planner's words: the groups as they are, what is asked for, and the steps from the one to the other."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from vmqos.extra_specs import CacheRequest
from vmqos.group_names import DEFAULT_GROUP, Owner
from vmqos.reason import NO_REASON, Reason
from vmqos.resctrl.bitmask import CapacityBitmask


@dataclass(frozen=True, slots=True)
class Split:
    """The ways of a group for code and for data, where resctrl is mounted with CDP.

    :ivar code: the ways that code fills.
    :ivar data: the ways that data fill.
    """

    code: CapacityBitmask
    data: CapacityBitmask

    @property
    def is_apart(self) -> bool:
        """Whether code and data have no way in common."""
        return not self.code.overlaps(self.data)


@dataclass(frozen=True, slots=True)
class Group:
    """A control group as it is in resctrl now.

    :ivar name: its directory below the root of resctrl; :data:`vmqos.group_names.DEFAULT_GROUP` for the default group.
    :ivar owner: whose it is.
    :ivar masks: its ways by cache (:mod:`vmqos.allocation.caches`), for code and data together; a cache that is missing
        takes no part (offline, or not yet set up).
    :ivar exclusive: whether the kernel itself refuses overlaps (mode ``exclusive``, or pseudo-locked).
    :ivar holds_closid: whether it takes one of the CLOSIDs; a pseudo-locked group has given its back.
    :ivar throttles: its limits of memory bandwidth by cache id, in the unit of schemata's line ``MB``.
    :ivar splits: which of its ways are for code and which for data, by cache; empty without CDP.
    """

    name: str
    owner: Owner
    masks: Mapping[int, CapacityBitmask]
    exclusive: bool = False
    holds_closid: bool = True
    throttles: Mapping[int, int] = field(default_factory=dict)
    splits: Mapping[int, Split] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Layout:
    """All control groups of the host, the default group included."""

    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One running VM and what its flavor asks for.

    :ivar uuid: the VM's UUID, the key of everything.
    :ivar wants: the promise to keep; only VMs that ask for something come here.
    :ivar caches: the caches the VM can run on: the L3s, whose ways and memory bandwidth it uses, never none; and, where
        it is pinned to cores, their L2s.
    :ivar arrival: a number that is smaller the earlier the VM came; equal ones are ordered by UUID.
    :ivar wants_on: the ways, and the limit of bandwidth, to have on single caches, where they are not what
        :attr:`wants` says: a VM that keeps what it has may have something else on each of its caches.
    :ivar in_own_group: whether the VM is to have a control group of its own although a class can grant what it asks
        for: its tasks are there and can't be moved.
    """

    uuid: str
    wants: CacheRequest
    caches: frozenset[int]
    arrival: int
    wants_on: Mapping[int, CacheRequest] = field(default_factory=dict, hash=False)
    in_own_group: bool = False


class WhenFull(enum.Enum):
    """What becomes of a VM for which no CLOSID is left (``[allocation] when_full``)."""

    PEND = "pend"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class Policy:
    """The operator's choices (the ``[allocation]`` section).

    :ivar default_ways_min: the fewest ways the default group keeps on every cache, L3 or L2, 1 or greater.
    :ivar use_shareable_ways: whether ways that I/O fills too may be given out exclusively (last).
    :ivar reserved_ways: ways that are left alone on every L3, for owners such as libvirt's cachetune.
    :ivar when_full: what to do when no CLOSID is left.
    :ivar kernel_exclusive: whether exclusive groups are put into the kernel's mode ``exclusive`` where it can be.
    :ivar shared_classes: what the shared classes grant for each of which a CLOSID is kept, whether it exists or not.
    :ivar other_classes: how many other shared classes may be made, 0 or more; ``None`` for what
        :func:`vmqos.allocation.rights.closids.most_others` says.
    :ivar placement_counts: whether Placement is told how many control groups exclusive VMs can have.
    """

    default_ways_min: int = 2
    use_shareable_ways: bool = False
    reserved_ways: CapacityBitmask = field(default_factory=CapacityBitmask)
    when_full: WhenFull = WhenFull.PEND
    kernel_exclusive: bool = True
    shared_classes: tuple[CacheRequest, ...] = ()
    other_classes: int | None = None
    placement_counts: bool = False


class PromiseState(enum.Enum):
    """How a VM's promise stands."""

    KEPT = "kept"
    PENDING = "pending"
    """Nothing of the promise is in force; it is tried again when something changes."""
    DEGRADED = "degraded"
    """A part of the promise is in force, or something other than was asked for."""
    NONE = "none"
    """The flavor asks for nothing."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one VM gets. The planner says what it is to have; the agent says what it has.

    :ivar state: how the promise stands; of the planner, once the plan is carried out.
    :ivar group: the control group its tasks belong in; :data:`vmqos.group_names.DEFAULT_GROUP` while pending.
    :ivar masks: the ways its promise gives it, by cache (:mod:`vmqos.allocation.caches`); empty while pending.
    :ivar reason: why it is not kept, naming the missing thing and what would help; empty where it is kept
        (or a remark, such as a request that was rounded up to ``min_cbm_bits``).
    :ivar throttles: the limits of memory bandwidth that its promise gives it, by cache id, in the unit of schemata.
    :ivar splits: its ways for code and for data, by cache, where it asks for them apart.
    :ivar since: when this state began, in seconds since 1970; 0 of the planner, who knows no clock.
    """

    state: PromiseState
    group: str = DEFAULT_GROUP
    masks: Mapping[int, CapacityBitmask] = field(default_factory=dict)
    reason: Reason = NO_REASON
    throttles: Mapping[int, int] = field(default_factory=dict)
    splits: Mapping[int, Split] = field(default_factory=dict)
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """``mkdir``. The kernel gives it every way that no group in mode ``exclusive`` holds; it has no tasks."""

    group: str


@dataclass(frozen=True, slots=True)
class WriteMasks:
    """One write of schemata; caches that are not named keep their mask.

    :ivar splits: with CDP, the parts of each mask; empty without.
    """

    group: str
    masks: Mapping[int, CapacityBitmask]
    splits: Mapping[int, Split] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteThrottles:
    """One write of the line ``MB`` of schemata; caches that are not named keep their limit."""

    group: str
    throttles: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class SetExclusive:
    """Write ``mode``: ``exclusive``, or ``shareable`` again."""

    group: str
    exclusive: bool


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """``rmdir`` of a group of ours that no VM needs; its tasks, if any, fall to the default group."""

    group: str


Step = CreateGroup | WriteMasks | WriteThrottles | SetExclusive | RemoveGroup


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order: ``prepare`` step by step, each VM's tasks to its group, ``retire``.

    :ivar prepare: makes every group that an allocation names ready for tasks. Rules 1 to 3 hold after each step. A
        group that no VM needs any more gets the default group's masks here: its ways can be given to others at once.
    :ivar allocations: by VM UUID, one for every request.
    :ivar retire: removes the groups that no VM needs any more; what they had is given away already, so that nothing
        leaks if this is never carried out.
    :ivar granted: how many ways each group is granted, by its name and cache; also those that could not be given back
        yet. The call of the next plan wants it, once this one was carried out.
    """

    prepare: tuple[Step, ...] = ()
    allocations: Mapping[str, Allocation] = field(default_factory=dict)
    retire: tuple[Step, ...] = ()
    granted: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
