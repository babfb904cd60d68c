# SPDX-License-Identifier: Apache-2.0
"""The requests to the planner for VMs that keep what they have.

Three kinds of VMs keep what they have: VMs that run and could not be looked at, VMs whose flavor is not known now, and
VMs for which something failed and is not tried again yet.

A VM's own control group bears the VM's name, and so does its monitoring group in a class. Where no RMID was left for a
monitoring group, the VM's tasks tell which class the VM is in. The tasks of a VM that could not be looked at are not
known. Such a VM may be in any class that has tasks of no known VM, so no such class is retired.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from vmqos import extra_specs, group_names
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Allocation, Group, Policy, PromiseState, Request, caches
from vmqos.allocation.planner_input import PlannerInput, read_input
from vmqos.allocation.rights import earlier
from vmqos.allocation.rights.claims import with_limit
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.group_names import DEFAULT_GROUP, Owner, owner_of
from vmqos.host.resctrl_state import ResctrlState
from vmqos.hypervisor import vm_tasks
from vmqos.hypervisor.exceptions import HypervisorError
from vmqos.resctrl import exceptions, tasks
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

_FIRST = 0
"""The arrival of VMs that keep what they have: they come before all VMs that want something."""


@dataclass(frozen=True, slots=True)
class Members:
    """Which VM is in which class, as far as the tasks show it.

    :ivar classes: the class that has tasks of a VM, by the VM's UUID.
    :ivar parted: UUIDs of the VMs whose first thread is not in their class: only threads of some vCPUs are in it.
    :ivar claimed: the classes that have tasks of no known VM.
    """

    classes: Mapping[str, str] = field(default_factory=dict)
    parted: frozenset[str] = frozenset()
    claimed: frozenset[str] = frozenset()


def find_members(
    filesystem: Filesystem, resctrl: ResctrlState, unseen: Set[str], unknown: Set[str], vms: Mapping[str, ObservedVm]
) -> Members:
    """Find the classes of those VMs that no group is named after. Where there is no such VM, no file is read.

    :param unseen: UUIDs of VMs that run and could not be looked at.
    :param unknown: UUIDs of VMs that were looked at, and whose flavors are not known now.
    :param vms: the VMs that were looked at, by UUID.
    """
    names = [group.name for group in resctrl.layout.groups if group.owner is Owner.CLASS]
    nameless = {uuid for uuid in unseen | unknown if _own(resctrl, uuid) is None and _class_of(resctrl, uuid) is None}
    if not names or not nameless:
        return Members()
    inside = {name: _tasks_in(filesystem, name) for name in names}
    classes, parted, unlisted = dict[str, str](), set[str](), set[str]()
    for uuid in sorted(nameless - unseen):
        own = _tasks_of(vms[uuid])
        if own is None:
            unlisted.add(uuid)
            continue
        name = max(names, key=lambda name: len(own & inside[name]))
        if own & inside[name]:
            classes[uuid] = name
            if vms[uuid].vm.process.pid not in inside[name]:
                parted.add(uuid)
    if not nameless & (unseen | unlisted):
        return Members(classes, frozenset(parted))
    known = set[int]().union(*(_tasks_of(observed) or () for uuid, observed in vms.items() if uuid not in unlisted))
    return Members(classes, frozenset(parted), frozenset(name for name in names if inside[name] - known))


def find_in_groups(
    filesystem: Filesystem, resctrl: ResctrlState, records: Iterable[VmRecord], reach: Mapping[str, Set[int]]
) -> dict[str, Allocation]:
    """What VMs have now, by UUID: the groups that their tasks are in tell. A VM that has nothing is left out.

    :param reach: the caches on which each VM can run, by UUID.
    """
    default, found = resctrl.group(DEFAULT_GROUP), dict[str, Allocation]()
    if default is None:
        return found
    classes = [group for group in resctrl.layout.groups if group.owner is Owner.CLASS]
    inside = {group.name: _tasks_in(filesystem, group.name) for group in classes}
    for record in records:
        own, tids = _own(resctrl, record.uuid), _tasks_of(record.observed) or set()
        if own is not None:
            inside[own.name] = _tasks_in(filesystem, own.name)
        theirs = classes if own is None else [own, *classes]
        group = max(theirs, key=lambda group: len(tids & inside[group.name]), default=None)
        if group is None or not tids & inside[group.name]:
            continue
        is_class, there = group.owner is Owner.CLASS, reach[record.uuid]
        held = {one for one in there & group.masks.keys() if is_class or not _shares(group, default, one)}
        given = Allocation(
            PromiseState.DEGRADED,
            group.name,
            {cache: group.masks[cache] for cache in held},
            throttles={cache: limit for cache, limit in _limits(resctrl, group).items() if cache in there},
            splits={cache: parts for cache, parts in group.splits.items() if cache in held},
        )
        if given.masks or given.throttles:
            found[record.uuid] = given
    return found


def requests(
    resctrl: ResctrlState,
    unseen: Set[str],
    members: Members | None = None,
    granted: Mapping[str, Mapping[int, int]] | None = None,
    before: Mapping[str, Request] | None = None,
) -> Iterator[Request]:
    """The requests that make the planner leave the VMs' groups as they are.

    A VM's own group is left in any case: the VM's tasks may be there, and once the VM can be looked at, the group tells
    that the VM had something.

    :param unseen: UUIDs of the VMs.
    :param members: the classes of VMs that no group is named after.
    :param granted: how many ways earlier plans granted to each group, by cache. The mask may not show it any more, if
        another program wrote it.
    :param before: what the last plan was asked for VMs that had something, by UUID. It counts where resctrl shows
        nothing of it any more.
    """
    members, granted, before = members or Members(), granted or {}, before or {}
    default = resctrl.group(DEFAULT_GROUP)
    inputs = read_input(resctrl.capabilities, resctrl.layout, Policy(), with_l2=True)
    for uuid in sorted(unseen):
        own = _own(resctrl, uuid)
        if own is not None and default is not None:
            known = granted.get(own.name) or _shown(inputs, own, default)
            if kept := of_its_own(resctrl, uuid, own, default, known):
                yield kept
                continue
        shared = _class_of(resctrl, uuid)
        if shared is None and uuid in members.classes:
            shared = resctrl.group(members.classes[uuid])
        if shared is not None:
            yield from _of_class(resctrl, uuid, shared)
        elif uuid in before:
            yield before[uuid]
        elif own is not None:
            yield Request(uuid, CacheRequest(), frozenset(own.masks), _FIRST, in_own_group=True)
    for name in sorted(members.claimed):
        # Which VM the class serves is not known, so the request bears the name of the class.
        group = resctrl.group(name)
        if group is not None:
            yield from _of_class(resctrl, name, group)


def _of_class(resctrl: ResctrlState, key: str, shared: Group) -> Iterator[Request]:
    """The request that makes the planner leave a class as it is.

    :param key: the name of the request: a VM's UUID, or the name of the class.
    """
    wants = group_names.class_request(shared.name)
    if wants is None:
        return
    limited = _limits(resctrl, shared)
    reach = (*limited, *caches.among(2, shared.masks)) if limited else shared.masks
    yield Request(key, wants, frozenset(reach), _FIRST)


def _own(resctrl: ResctrlState, uuid: str) -> Group | None:
    """The VM's own control group."""
    return resctrl.group(group_names.vm_group(uuid))


def _class_of(resctrl: ResctrlState, uuid: str) -> Group | None:
    """The class in which the VM has its monitoring group.

    The default group does not count as one: a VM may have a second monitoring group there, for its tasks that have no
    part in its promise.
    """
    name, inside = group_names.vm_group(uuid), resctrl.monitoring_groups
    classes = (group for group in resctrl.layout.groups if group.name != DEFAULT_GROUP)
    return next((group for group in classes if name in inside.get(group.name, ())), None)


def _tasks_in(filesystem: Filesystem, name: str) -> set[int]:
    try:
        return tasks.read_tasks(filesystem, name)
    except exceptions.ResctrlError as error:
        LOG.info("the tasks of the class %s can't be read: %s", name, error)
        return set()


def _tasks_of(observed: ObservedVm) -> set[int] | None:
    """The tasks of a VM; ``None`` where they can't be listed now."""
    try:
        return vm_tasks.all_tasks(observed.vm)
    except (HypervisorError, OSError) as error:
        LOG.debug("the tasks of VM %s can't be listed now: %s", observed.vm.uuid, error)
        return None


def _shown(inputs: PlannerInput, own: Group, default: Group) -> dict[int, int]:
    """How many ways a VM's own group shows to have been granted where the default group has ways of it, by cache.

    Another program has written one of the two masks then, before this agent ran. Two masks are left out: the default
    group's own, which a VM has where it can't run, and one of all ways, which says nothing about how many were granted.
    """
    found = {}
    for cache, ways in inputs.cache_ways.items():
        mask, shared = own.masks.get(cache), default.masks.get(cache)
        if mask is None or shared is None or not mask.overlaps(shared) or mask == shared or mask.bits == ways.every:
            continue
        if before := earlier.of_vm(inputs, own.name, cache, mask.count, {}).ways:
            found[cache] = before
    return found


def of_its_own(
    resctrl: ResctrlState,
    uuid: str,
    own: Group,
    default: Group,
    granted: Mapping[int, int] = MappingProxyType({}),
) -> Request | None:
    """The request that matches what a VM's own group gives it now; ``None`` where that is nothing.

    Where the VM can run is not known. On a cache where it can't, its group has the default group's mask. While both
    masks are on their way to other ways, they may not overlap, and then this one looks like a grant (rule 6). So each
    cache is asked for by itself: what one of them seems to give takes nothing away on another one (rule 4).

    :param granted: how many ways earlier plans granted to the group, by cache.
    """
    held = {
        cache
        for cache, mask in own.masks.items()
        if cache in default.masks and (granted[cache] if cache in granted else not mask.overlaps(default.masks[cache]))
    }
    # A limit stays where it is, whatever the masks look like.
    has = dict.fromkeys(_limits(resctrl, own), CacheRequest())
    has |= {cache: _on(own, cache, granted.get(cache)) for cache in held}
    if not has:
        return None
    wants, wants_on = _all_of(_with_limits(resctrl, own, has))
    return Request(uuid, wants, frozenset(has), _FIRST, wants_on, in_own_group=True)


def of_failed(
    resctrl: ResctrlState,
    record: VmRecord,
    whole: Request,
    granted: Mapping[str, Mapping[int, int]] = MappingProxyType({}),
) -> Request | None:
    """The request for the part of what its flavor asks for that a VM has now; ``None`` where it has nothing.

    It stands for the whole request while something that failed for the VM is not tried again yet.

    :param whole: the whole request.
    :param granted: how many ways earlier plans granted to each group, by cache.
    """
    group, wants = _own(resctrl, record.uuid), whole.wants
    control = record.tasks.target.control if record.tasks is not None else None
    if group is None or control not in (group.name, None):
        # A VM in a class stays in it, and a VM whose group another program has removed is given back what it had. A VM
        # that has nothing waits. A group that was only just made gives its VM nothing yet: the kernel's first mask,
        # which may be the whole cache, is no grant.
        stays = record.request.asked if record.request.trial else wants
        is_class = control is not None and owner_of(control) is Owner.CLASS
        is_gone = group is None and control == group_names.vm_group(record.uuid)
        had = is_class or is_gone or (control is None and _may_be_in_class(resctrl, record.uuid, wants))
        if is_class and control is not None and resctrl.group(control) is not None:
            # It may be another class than its flavor asks for, which could not be made.
            stays = group_names.class_request(control) or stays
        return replace(whole, wants=stays) if stays is not None and had else None
    default, given = resctrl.group(DEFAULT_GROUP), granted.get(group.name, {})
    if control == group.name and default is not None and _is_for_class(wants):
        # Its flavor asks for a class now, which could not be made.
        kept = of_its_own(resctrl, record.uuid, group, default, given)
        return replace(kept, arrival=whole.arrival) if kept is not None else None
    # Where nothing was granted to it, it may have the default group's mask still, as where it could not run until now.
    nothing = {
        cache for cache, ways in given.items() if not ways and default is not None and _shares(group, default, cache)
    }
    there = frozenset(whole.caches & group.masks.keys() - nothing)
    if control is None:
        # Where the VM's tasks are is not known: it may be such a group.
        there = frozenset(cache for cache in there if not _is_first_mask(resctrl, group, cache, wants))
    of_l3 = caches.among(3, there) if wants.l3_ways else frozenset[int]()
    of_l2 = caches.among(2, there) if wants.l2_ways is not None else frozenset[int]()
    has = _own_or_few(resctrl, group, of_l3) | _own_or_few(resctrl, group, of_l2)
    most = replace(_all_of(has)[0], l2_ways=None)
    has = dict.fromkeys(caches.among(3, whole.caches), most) | has
    held, held_on = _all_of(_with_limits(resctrl, group, has))
    held = replace(held, policy=wants.policy)
    return replace(whole, wants=held, wants_on=held_on) if extra_specs.asks_for(held) else None


def _shares(group: Group, default: Group, cache: int) -> bool:
    """Whether a group has ways of the default group on a cache."""
    mask, other = group.masks.get(cache), default.masks.get(cache)
    return mask is not None and other is not None and mask.overlaps(other)


def _is_for_class(wants: CacheRequest) -> bool:
    """Whether a class grants what a VM's flavor asks for, and not a group of its own."""
    return wants.policy is CachePolicy.SHARED or not (wants.l3_ways or wants.l2_ways is not None)


def _may_be_in_class(resctrl: ResctrlState, uuid: str, wants: CacheRequest) -> bool:
    """Whether a VM may be in a class: where its tasks are is not known. It may have no monitoring group there.

    :param wants: what the VM's flavor asks for.
    """
    has_class = any(group.owner is Owner.CLASS for group in resctrl.layout.groups)
    return _class_of(resctrl, uuid) is not None or (wants.policy is CachePolicy.SHARED and has_class)


def _is_first_mask(resctrl: ResctrlState, group: Group, cache: int, wants: CacheRequest) -> bool:
    """Whether a VM's own group has a mask that the kernel made: it is the default group's too, and too long.

    :param wants: what the VM's flavor asks for.
    """
    default, mask = resctrl.group(DEFAULT_GROUP), group.masks[cache]
    if default is None or not _shares(group, default, cache):
        return False
    capabilities = resctrl.capabilities
    resource = capabilities.l2 if caches.level(cache) == 2 else capabilities.l3
    fewest = max(1, resource.min_cbm_bits) if resource is not None else 1
    parts = (wants.l2_ways,) if caches.level(cache) == 2 else (wants.ways, wants.code_ways, wants.data_ways)
    return mask.count > sum(max(fewest, part) for part in parts if part is not None)


def _own_or_few(resctrl: ResctrlState, group: Group, there: Set[int]) -> dict[int, CacheRequest]:
    """The requests for what a VM's own group has on caches of one level where the VM can run.

    On a cache that the VM did not use until now it has the default group's mask, which may be longer than any grant.
    There it asks for no more ways than it has on the other caches.
    """
    default = resctrl.group(DEFAULT_GROUP)
    shared = default.masks if default is not None else {}
    own = {cache for cache in there if cache not in shared or not group.masks[cache].overlaps(shared[cache])}
    few = min((group.masks[cache].count for cache in own or there), default=0)
    return {cache: _on(group, cache, None if cache in own else min(few, group.masks[cache].count)) for cache in there}


def _on(group: Group, cache: int, ways: int | None = None) -> CacheRequest:
    """The request for as many ways as a VM's own group has on a cache.

    :param ways: how many to ask for instead, where the mask's length does not count.
    """
    count = ways or max(1, group.masks[cache].count)
    if caches.level(cache) == 2:
        return CacheRequest(l2_ways=count)
    parts = group.splits.get(cache)
    if parts is not None and parts.is_apart:
        return CacheRequest(code_ways=parts.code.count, data_ways=parts.data.count)
    return CacheRequest(ways=count)


def _all_of(has: Mapping[int, CacheRequest]) -> tuple[CacheRequest, dict[int, CacheRequest]]:
    """The request for the most ways that a VM has on a cache of each level, and what it has on the other caches.

    :param has: the request for what the VM has on each cache alone.
    """
    most = {cache: one.l3_ways + (one.l2_ways or 0) for cache, one in has.items()}
    wants, others = CacheRequest(), dict[int, CacheRequest]()
    for level in (3, 2):
        if not (of_level := sorted(caches.among(level, has))):
            continue
        first = has[max(of_level, key=most.__getitem__)]
        wants = replace(wants, l2_ways=first.l2_ways) if level == 2 else first
        others |= {cache: has[cache] for cache in of_level if has[cache] != first}
    return wants, others


def _with_limits(resctrl: ResctrlState, own: Group, has: Mapping[int, CacheRequest]) -> dict[int, CacheRequest]:
    """The requests for what a VM has on single caches, each with the limit of bandwidth that its own group has there.

    Where the group has no limit, the VM has come to that cache, or the cache came online: it gets the smallest one.
    """
    limits, resource = _limits(resctrl, own), resctrl.capabilities.memory_bandwidth
    few = min(limits.values(), default=None)
    of_l3 = {cache: with_limit(has[cache], resource, limits.get(cache, few)) for cache in caches.among(3, has)}
    return {**has, **of_l3}


def _limits(resctrl: ResctrlState, group: Group) -> dict[int, int]:
    """The limits of bandwidth that a group has, by cache."""
    return {cache: value for cache, value in group.throttles.items() if value < _unlimited(resctrl)}


def _unlimited(resctrl: ResctrlState) -> int:
    bandwidth = resctrl.capabilities.memory_bandwidth
    return bandwidth.unit.unlimited if bandwidth is not None else 0
