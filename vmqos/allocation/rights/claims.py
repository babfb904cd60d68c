# SPDX-License-Identifier: Apache-2.0
"""What each VM asks for, in ways and limits of this machine, and what it already has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vmqos.allocation import caches, reasons
from vmqos.allocation.cache_ways import CacheWays
from vmqos.allocation.model import Request
from vmqos.allocation.planner_input import PlannerInput
from vmqos.allocation.rights import earlier
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.group_names import DEFAULT_GROUP, class_group, vm_group
from vmqos.reason import NO_REASON, Reason, joined
from vmqos.resctrl.capabilities import EIGHTH_GBPS_IN_MBPS, BandwidthResource, BandwidthUnit, Capabilities


@dataclass(frozen=True, slots=True)
class Claim:
    """A VM that asks for a control group of its own, or for a cap within the pool or only a limit of bandwidth.

    :ivar uuid: the VM's UUID.
    :ivar group: the VM's own control group, or the class that grants what it asks for; either may not exist yet.
    :ivar shared: whether it is a class that grants it.
    :ivar caches: the caches that the VM can run on, and that resctrl knows; none where it asks for no ways.
    :ivar asked: how many L3 ways its flavor names.
    :ivar ways: how many L3 ways it is to get: at least as many as the smallest legal mask has. For a class it is the
        cap: at most the whole cache; 0 for the whole pool.
    :ivar throttles: its limits of memory bandwidth, by cache id.
    :ivar code: how many of the ways are for code; 0 where code and data fill all of them.
    :ivar data: how many of the ways are for data.
    :ivar asked_l2: how many L2 ways its flavor names.
    :ivar l2: how many L2 ways it is to get, or the class's cap on L2.
    :ivar ways_on: how many ways the VM is to get on each of its caches, or the class's cap there.
    :ivar parts_on: how many of the ways are for code and how many for data on single L3s, where it is not :attr:`code`
        and :attr:`data`.
    :ivar held: the ways that are its own now, by cache; none in a class. A VM that has none anywhere is a newcomer.
    :ivar near: the ways of its own group that it need not leave, though another group has them too.
    :ivar owed: what its own group was granted before, by cache, where that is more than it has now.
    :ivar keeps_group: whether its own group stays in any case, because the VM's tasks are there and can't be moved.
    """

    uuid: str
    group: str
    shared: bool
    caches: tuple[int, ...]
    asked: int
    ways: int
    throttles: Mapping[int, int] = field(default_factory=dict)
    code: int = 0
    data: int = 0
    asked_l2: int = 0
    l2: int = 0
    ways_on: Mapping[int, int] = field(default_factory=dict)
    parts_on: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    held: Mapping[int, int] = field(default_factory=dict)
    near: Mapping[int, int] = field(default_factory=dict)
    owed: Mapping[int, earlier.EarlierGrant] = field(default_factory=dict)
    keeps_group: bool = False

    def parts(self, cache: int) -> tuple[int, int]:
        """How many of the ways of an L3 are for code and how many for data; 0 where both fill all of them."""
        return self.parts_on.get(cache, (self.code, self.data))

    def has(self, cache: int) -> int:
        """How many ways the VM has of its own on a cache now, of those that it asks for."""
        return min(self.ways_on.get(cache, 0), self.held.get(cache, 0).bit_count())


@dataclass(frozen=True, slots=True)
class Throttle:
    """What a VM gets of the memory bandwidth.

    A limit takes nothing from other groups, so there is nothing to place: it is a plain value of a group.

    :ivar value: its limit, as schemata says it; ``None`` where it gets none.
    :ivar fault: why it does not get what it asks for; empty where it does.
    :ivar remark: what it gets instead of exactly that; empty where it is exactly that.
    """

    value: int | None = None
    fault: Reason = NO_REASON
    remark: Reason = NO_REASON


def read(inputs: PlannerInput) -> list[Claim]:
    """The claims of the requests, in order of arrival; a request has none if this machine can give it nothing.

    Which ways are a VM's own now? A mask that overlaps the default group's mask is not. There are four causes: an agent
    was killed just after it created the group, the VM did not use that cache until now, another program wrote the
    default group's mask, or the cache came online. :mod:`vmqos.allocation.rights.earlier` tells what the VM is owed
    then. A mask that overlaps only the mask of a class is the VM's own: then it is the class that was just created.
    """
    claims = _claims(inputs)
    settled = dict.fromkeys(inputs.cache_ways, 0)
    default = inputs.masks[DEFAULT_GROUP]
    present = [claim for claim in claims if not claim.shared and claim.group in inputs.masks]
    # The right masks come first: a mask that another program made too long must not put them in doubt.
    present.sort(key=lambda claim: any(_is_too_long(inputs, claim, cache) for cache in claim.caches))
    held: dict[str, dict[int, int]] = {claim.uuid: {} for claim in present}
    near: dict[str, dict[int, int]] = {claim.uuid: {} for claim in present}
    for found, in_force in ((held, True), (near, False)):
        for claim in present:
            masks = inputs.masks[claim.group]
            for cache in claim.caches:
                mask = masks.get(cache, 0)
                wanted = not mask & default.get(cache, 0) if in_force else mask.bit_count() == claim.ways_on[cache]
                if wanted and inputs.cache_ways[cache].legal(mask) and not mask & settled[cache]:
                    settled[cache] |= mask
                    found[claim.uuid][cache] = mask
    complete = []
    for claim in claims:
        if claim.uuid in held:
            complete.append(_with_debts(inputs, replace(claim, held=held[claim.uuid], near=near[claim.uuid])))
        elif not claim.shared and any(inputs.granted.get(claim.group, {}).values()):
            complete.append(_with_debts(inputs, claim))
        else:
            complete.append(claim)
    return complete


def _claims(inputs: PlannerInput) -> list[Claim]:
    """What each request asks for. Many VMs are of few flavors, so equal requests are worked out once."""
    first: dict[tuple[object, ...], Claim | None] = {}
    claims = []
    for request in inputs.requests:
        alike = request.wants, request.caches, tuple(request.wants_on.items()), request.in_own_group
        if alike not in first:
            first[alike] = _claim(inputs, request)
        if (claim := first[alike]) is not None:
            group = claim.group if claim.shared else vm_group(request.uuid)
            claims.append(replace(claim, uuid=request.uuid, group=group))
    return claims


def _claim(inputs: PlannerInput, request: Request) -> Claim | None:
    """The claim of one request, without what the VM has.

    If a VM asks only for a limit of bandwidth, and the limit is a percentage, a class grants it: a percentage binds
    each CPU by itself. A limit in MB/s binds all tasks of a control group together, so a VM that does not ask to share
    gets a group of its own.
    """
    wants = request.wants
    known = request.caches & inputs.cache_ways.keys()
    # All caches of a level are alike.
    of_level = {caches.level(cache): inputs.cache_ways[cache] for cache in known}
    l3, l2 = of_level.get(3), of_level.get(2)
    asked, ways, code, data = _on_l3(inputs, l3, wants) if l3 else (0, 0, 0, 0)
    asked_l2, ways_l2 = _on_l2(l2, wants) if l2 else (0, 0)
    used = tuple(sorted(cache for cache in known if (ways_l2 if caches.level(cache) == 2 else ways)))
    resource, limit = inputs.capabilities.memory_bandwidth, bandwidth(inputs.capabilities, wants).value
    limited = request.caches & frozenset(resource.cache_ids) if resource is not None else frozenset[int]()
    limits = dict.fromkeys(limited, limit)
    limits |= {
        cache: bandwidth(inputs.capabilities, request.wants_on[cache]).value
        for cache in limited & request.wants_on.keys()
    }
    throttles = {cache: value for cache, value in sorted(limits.items()) if value is not None}
    if not (used or throttles or request.in_own_group):
        return None
    group = vm_group(request.uuid)
    is_limit_alone = not used and wants.bandwidth_percent is not None
    shared = wants.policy is CachePolicy.SHARED or (is_limit_alone and not request.in_own_group)
    if shared:
        ways = min(ways, l3.every.bit_count()) if l3 else 0
        ways_l2 = min(ways_l2, l2.every.bit_count()) if l2 else 0
        whole = None if code else ways or None
        grants = CacheRequest(whole, CachePolicy.SHARED, code or None, data or None, ways_l2 or None)
        group = class_group(with_limit(grants, resource, limit if throttles else None))
    ways_on = {cache: ways_l2 if caches.level(cache) == 2 else ways for cache in used}
    parts_on = dict[int, tuple[int, int]]()
    for cache, wants_here in request.wants_on.items():
        if cache not in ways_on:
            continue
        if caches.level(cache) == 2:
            _, ways_on[cache] = _on_l2(inputs.cache_ways[cache], wants_here)
        else:
            _, ways_on[cache], code_here, data_here = _on_l3(inputs, inputs.cache_ways[cache], wants_here)
            parts_on[cache] = code_here, data_here
    # On some caches the VM may want nothing but a limit of bandwidth.
    ways_on = {cache: count for cache, count in ways_on.items() if count}
    return Claim(
        uuid=request.uuid,
        group=group,
        shared=shared,
        caches=tuple(ways_on),
        asked=asked,
        ways=ways,
        throttles=throttles,
        code=code,
        data=data,
        asked_l2=asked_l2,
        l2=ways_l2,
        ways_on=ways_on,
        parts_on=parts_on,
        keeps_group=request.in_own_group,
    )


def _on_l3(inputs: PlannerInput, l3: CacheWays, wants: CacheRequest) -> tuple[int, int, int, int]:
    """How many ways of an L3 are asked for, how many that comes to, and how many of these are for code and for data."""
    asked = code = data = 0
    if wants.code_ways is None or wants.data_ways is None:
        asked = wants.ways or 0
    elif 3 in inputs.capabilities.split_levels and (asked := wants.code_ways + wants.data_ways):
        code, data = max(wants.code_ways, l3.fewest), max(wants.data_ways, l3.fewest)
    return asked, max(asked, l3.fewest, code + data) if asked else 0, code, data


def _on_l2(l2: CacheWays, wants: CacheRequest) -> tuple[int, int]:
    """How many ways of an L2 are asked for, and how many that comes to."""
    asked = wants.l2_ways or 0
    return asked, max(asked, l2.fewest) if asked else 0


def unmet(inputs: PlannerInput, request: Request) -> Reason:
    """Why this machine, mounted as it is, can't give all of the request to any VM; empty where it can."""
    faults, known = [], request.caches & inputs.cache_ways.keys()
    if request.wants.ways is not None or request.wants.code_ways is not None:
        if inputs.capabilities.l3 is None:
            faults.append(reasons.NO_L3)
        elif request.wants.code_ways is not None and 3 not in inputs.capabilities.split_levels:
            faults.append(reasons.NO_CDP)
        elif not any(caches.level(cache) == 3 for cache in known):
            faults.append(reasons.NO_CACHE)
    if request.wants.l2_ways is not None:
        if inputs.capabilities.l2 is None:
            faults.append(reasons.NO_L2)
        elif not any(caches.level(cache) == 2 for cache in known):
            pinned = any(caches.level(cache) == 2 for cache in request.caches)
            faults.append(reasons.NO_L2_CACHE if pinned else reasons.NOT_PINNED)
    throttle = bandwidth(inputs.capabilities, request.wants)
    faults.append(throttle.fault)
    resource = inputs.capabilities.memory_bandwidth
    if throttle.value is not None and resource is not None and not request.caches & set(resource.cache_ids):
        faults.append(reasons.NO_CACHE)
    return joined(*faults)


def _is_too_long(inputs: PlannerInput, claim: Claim, cache: int) -> bool:
    """Whether the VM has more ways than it asks for, or than it was granted."""
    granted = inputs.granted.get(claim.group, {}).get(cache, claim.ways_on[cache])
    return inputs.masks[claim.group].get(cache, 0).bit_count() > min(granted, claim.ways_on[cache])


def _with_debts(inputs: PlannerInput, claim: Claim) -> Claim:
    """Fill in what the VM was granted before and does not have any more."""
    lacking = [cache for cache in claim.caches if claim.has(cache) < claim.ways_on[cache]]
    if not lacking:
        return claim
    granted = {cache: earlier.of_vm(inputs, claim.group, cache, claim.ways_on[cache], claim.held) for cache in lacking}
    return replace(claim, owed={cache: grant for cache, grant in granted.items() if grant.ways > claim.has(cache)})


def bandwidth(capabilities: Capabilities, wants: CacheRequest) -> Throttle:
    """What a request's bandwidth comes to: rounded up to what the hardware can do.

    Per cent are no measure where the hardware counts in 1/8 GB/s: its greatest value stands for no limit, whatever the
    memory can do, so there is nothing to take per cent of. Nor are they where resctrl is mounted with ``mba_MBps``.
    """
    percent, mbps = wants.bandwidth_percent, wants.bandwidth_mbps
    if percent is None and mbps is None:
        return Throttle()
    resource = capabilities.memory_bandwidth
    if resource is None:
        return Throttle(fault=reasons.NO_BANDWIDTH)
    match resource.unit:
        case BandwidthUnit.PERCENT if percent is not None:
            value = min(_rounded(resource, percent), resource.unit.unlimited)
            remark = reasons.percent_raised(percent, value, resource) if value != percent else NO_REASON
            return Throttle(value, remark=remark)
        case BandwidthUnit.MBPS if mbps is not None:
            return Throttle(mbps)
        case BandwidthUnit.EIGHTH_GBPS if mbps is not None:
            value = min(_rounded(resource, -(-mbps // EIGHTH_GBPS_IN_MBPS)), resource.unit.unlimited)
            real = resource.unit.told(value)
            return Throttle(value, remark=reasons.mbps_changed(mbps, real) if real != mbps else NO_REASON)
        case BandwidthUnit.PERCENT:
            return Throttle(fault=reasons.no_mbps(capabilities))
        case BandwidthUnit.MBPS:
            return Throttle(fault=reasons.NO_PERCENT)
        case BandwidthUnit.EIGHTH_GBPS:
            return Throttle(fault=reasons.NO_PERCENT_OF_GBPS)


def with_limit(grants: CacheRequest, resource: BandwidthResource | None, value: int | None) -> CacheRequest:
    """What a class grants besides this limit of memory bandwidth, and the limit itself.

    :param value: the limit, in the unit of schemata; ``None`` for none.
    """
    if resource is None or value is None:
        return grants
    if resource.unit is BandwidthUnit.PERCENT:
        return replace(grants, bandwidth_percent=value)
    return replace(grants, bandwidth_mbps=resource.unit.told(value))


def _rounded(resource: BandwidthResource, value: int) -> int:
    """Up to the next step, as the kernel does it (``bw_validate`` in its resctrl)."""
    step = max(1, resource.bandwidth_gran)
    return max(resource.min_bandwidth, -(-value // step) * step)
