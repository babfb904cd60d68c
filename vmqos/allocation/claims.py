# SPDX-License-Identifier: Apache-2.0
"""What each VM asks for, in ways and limits of this machine, and what it already has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vmqos.allocation import caches, earlier, reasons, throttle
from vmqos.allocation.model import Request
from vmqos.allocation.planner_input import PlannerInput
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.group_names import DEFAULT_GROUP, class_group, vm_group
from vmqos.reason import Reason, joined


@dataclass(frozen=True, slots=True)
class ExclusiveClaim:
    """A VM that asks for a control group of its own.

    :ivar uuid: the VM's UUID.
    :ivar group: the name of the VM's own control group, which may not exist yet.
    :ivar caches: the caches that the VM can run on, and that resctrl knows; none where it asks for no ways.
    :ivar asked: how many L3 ways its flavor names.
    :ivar ways: how many L3 ways it is to get: at least as many as the smallest legal mask has.
    :ivar throttles: its limits of memory bandwidth, by cache id.
    :ivar code: how many of the ways are for code; 0 where code and data fill all of them.
    :ivar data: how many of the ways are for data.
    :ivar asked_l2: how many L2 ways its flavor names.
    :ivar l2: how many L2 ways it is to get.
    :ivar held: the ways that are its own now, by cache; a VM that has none anywhere is a newcomer.
    :ivar near: the ways of its group that it need not leave, though another group has them too.
    :ivar owed: what it was granted before, by cache, where that is more than it has now.
    """

    uuid: str
    group: str
    caches: tuple[int, ...]
    asked: int
    ways: int
    throttles: Mapping[int, int] = field(default_factory=dict)
    code: int = 0
    data: int = 0
    asked_l2: int = 0
    l2: int = 0
    held: Mapping[int, int] = field(default_factory=dict)
    near: Mapping[int, int] = field(default_factory=dict)
    owed: Mapping[int, earlier.EarlierGrant] = field(default_factory=dict)

    def has(self, cache: int) -> int:
        """How many ways the VM has on a cache now, of those that it asks for."""
        return min(self.ways_on(cache), self.held.get(cache, 0).bit_count())

    def ways_on(self, cache: int) -> int:
        """How many ways the VM is to get on a cache."""
        return self.l2 if caches.level(cache) == 2 else self.ways


@dataclass(frozen=True, slots=True)
class SharedClaim:
    """A VM that asks for a cap within the pool, or only for a limit of bandwidth.

    :ivar uuid: the VM's UUID.
    :ivar group: the class that grants it.
    :ivar caches: the caches that the VM can run on, and that resctrl knows; none where it asks for no ways.
    :ivar asked: how many L3 ways its flavor names.
    :ivar ways: the class's cap: at least the smallest legal mask, at most the whole cache; 0 for the whole pool.
    :ivar throttles: its limits of memory bandwidth, by cache id.
    :ivar code: how many of the ways are for code; 0 where code and data fill all of them.
    :ivar data: how many of the ways are for data.
    :ivar asked_l2: how many L2 ways its flavor names.
    :ivar l2: the class's cap on L2; 0 for the whole pool.
    """

    uuid: str
    group: str
    caches: tuple[int, ...]
    asked: int
    ways: int
    throttles: Mapping[int, int] = field(default_factory=dict)
    code: int = 0
    data: int = 0
    asked_l2: int = 0
    l2: int = 0

    def ways_on(self, cache: int) -> int:
        """The class's cap on a cache."""
        return self.l2 if caches.level(cache) == 2 else self.ways


Claim = ExclusiveClaim | SharedClaim


def in_order(requests: Iterable[Request]) -> list[Request]:
    """The requests in order of arrival; if there are several for one VM, only the first counts."""
    first: dict[str, Request] = {}
    for request in sorted(requests, key=lambda request: (request.arrival, request.uuid)):
        first.setdefault(request.uuid, request)
    return list(first.values())


def read(inputs: PlannerInput, requests: Sequence[Request]) -> list[Claim]:
    """The claims of the requests, in order of arrival; a request has none if this machine can give it nothing.

    If a VM asks only for a limit of bandwidth, and the limit is a percentage, a class grants it: a percentage binds
    each CPU by itself. A limit in MB/s binds all tasks of a control group together, so a VM that does not ask to share
    gets a group of its own.
    """
    claims: list[Claim] = []
    exclusive: list[ExclusiveClaim] = []
    for request in requests:
        wants, reach = request.wants, request.caches & inputs.cache_ways.keys()
        wanted = {3: _ways_of(inputs, wants), 2: wants.l2_ways or 0}
        for level in wanted:
            if not caches.among(level, reach):
                wanted[level] = 0
        used = tuple(sorted(cache for cache in reach if wanted[caches.level(cache)]))
        throttles = _throttles(inputs, request)
        if not used and not throttles:
            continue
        if wants.policy is CachePolicy.SHARED or (not used and wants.bandwidth_percent is not None):
            claims.append(_shared(inputs, request, used, wanted, throttles))
        else:
            exclusive.append(_exclusive(inputs, request, used, wanted, throttles))
    order = {request.uuid: number for number, request in enumerate(requests)}
    claims += _with_what_they_hold(inputs, exclusive)
    return sorted(claims, key=lambda claim: order[claim.uuid])


def _throttles(inputs: PlannerInput, request: Request) -> dict[int, int]:
    """The limits of bandwidth that the machine can give to a request, by cache id."""
    resource, limit = inputs.capabilities.memory_bandwidth, throttle.read(inputs.capabilities, request.wants).value
    if resource is None or limit is None:
        return {}
    return {cache: limit for cache in resource.cache_ids if cache in request.caches}


def _exclusive(
    inputs: PlannerInput,
    request: Request,
    used: tuple[int, ...],
    wanted: Mapping[int, int],
    throttles: Mapping[int, int],
) -> ExclusiveClaim:
    code, data = _parts_of(inputs, request.wants) if wanted[3] else (0, 0)
    return ExclusiveClaim(
        request.uuid,
        vm_group(request.uuid),
        used,
        asked=wanted[3],
        ways=max(wanted[3], inputs.fewest(3), code + data) if wanted[3] else 0,
        throttles=throttles,
        code=code,
        data=data,
        asked_l2=wanted[2],
        l2=max(wanted[2], inputs.fewest(2)) if wanted[2] else 0,
    )


def _shared(
    inputs: PlannerInput,
    request: Request,
    used: tuple[int, ...],
    wanted: Mapping[int, int],
    throttles: Mapping[int, int],
) -> SharedClaim:
    """What a VM of a class asks for within the pool, where no cap can be larger than the cache."""
    alone = _exclusive(inputs, request, used, wanted, throttles)
    most = {3: 0, 2: 0}
    for cache in used:
        most[caches.level(cache)] = max(most[caches.level(cache)], inputs.cache_ways[cache].every.bit_count())
    ways, l2 = min(alone.ways, most[3]), min(alone.l2, most[2])
    grants = CacheRequest(policy=CachePolicy.SHARED, l2_ways=l2 or None)
    if alone.code:
        grants = replace(grants, code_ways=alone.code, data_ways=alone.data)
    else:
        grants = replace(grants, ways=ways or None)
    limit = next(iter(throttles.values()), None)
    return SharedClaim(
        request.uuid,
        class_group(throttle.with_limit(grants, inputs.capabilities.memory_bandwidth, limit)),
        used,
        asked=alone.asked,
        ways=ways,
        throttles=throttles,
        code=alone.code,
        data=alone.data,
        asked_l2=alone.asked_l2,
        l2=l2,
    )


def _parts_of(inputs: PlannerInput, wants: CacheRequest) -> tuple[int, int]:
    """How many ways are for code and how many for data; 0 and 0 where the flavor does not name them apart."""
    if wants.code_ways is None or wants.data_ways is None:
        return 0, 0
    return max(wants.code_ways, inputs.fewest(3)), max(wants.data_ways, inputs.fewest(3))


def _ways_of(inputs: PlannerInput, wants: CacheRequest) -> int:
    """How many L3 ways are asked for, code and data together; 0 for none, or where the machine can't divide them."""
    if wants.code_ways is None or wants.data_ways is None:
        return wants.ways or 0
    return wants.code_ways + wants.data_ways if inputs.capabilities.cdp else 0


def unmet(inputs: PlannerInput, request: Request) -> Reason:
    """Why this machine, mounted as it is, can't give all of the request to any VM; empty where it can."""
    faults = []
    if request.wants.ways is not None or request.wants.code_ways is not None:
        if inputs.capabilities.l3 is None:
            faults.append(reasons.NO_L3)
        elif request.wants.code_ways is not None and not inputs.capabilities.cdp:
            faults.append(reasons.NO_CDP)
        elif not caches.among(3, request.caches) & inputs.cache_ways.keys():
            faults.append(reasons.NO_CACHE)
    if request.wants.l2_ways is not None:
        cores = caches.among(2, request.caches)
        if inputs.capabilities.l2 is None:
            faults.append(reasons.NO_L2)
        elif not cores & inputs.cache_ways.keys():
            faults.append(reasons.NO_L2_CACHE if cores else reasons.NOT_PINNED)
    bandwidth = throttle.read(inputs.capabilities, request.wants)
    faults.append(bandwidth.fault)
    resource = inputs.capabilities.memory_bandwidth
    if bandwidth.value is not None and resource is not None and not request.caches & set(resource.cache_ids):
        faults.append(reasons.NO_CACHE)
    return joined(*faults)


def remarks(inputs: PlannerInput, request: Request) -> Reason:
    """What the VM gets on this machine where that is not exactly what its flavor names; empty where it is."""
    return throttle.read(inputs.capabilities, request.wants).remark


def _with_what_they_hold(inputs: PlannerInput, claims: Collection[ExclusiveClaim]) -> list[ExclusiveClaim]:
    """Fill in which ways are the VMs' own now.

    A mask that overlaps the default group's mask is not the VM's own. There are four causes: an agent was killed just
    after it created the group, the VM did not use that cache until now, another program wrote the default group's mask,
    or the cache came online. :mod:`vmqos.allocation.earlier` tells what the VM is owed then. A mask that overlaps only
    the mask of a class is the VM's own: then it is the class that was just created.
    """
    settled = dict.fromkeys(inputs.cache_ways, 0)
    default = inputs.masks[DEFAULT_GROUP]
    present = [claim for claim in claims if claim.group in inputs.masks]
    # The right masks come first: a mask that another program made too long must not put them in doubt.
    present.sort(key=lambda claim: any(_is_too_long(inputs, claim, cache) for cache in claim.caches))
    held: dict[str, dict[int, int]] = {claim.uuid: {} for claim in present}
    near: dict[str, dict[int, int]] = {claim.uuid: {} for claim in present}
    for found, in_force in ((held, True), (near, False)):
        for claim in present:
            masks = inputs.masks[claim.group]
            for cache in claim.caches:
                mask = masks.get(cache, 0)
                wanted = not mask & default.get(cache, 0) if in_force else mask.bit_count() == claim.ways_on(cache)
                if wanted and inputs.cache_ways[cache].legal(mask) and not mask & settled[cache]:
                    settled[cache] |= mask
                    found[claim.uuid][cache] = mask
    return [
        _with_debts(inputs, replace(claim, held=held[claim.uuid], near=near[claim.uuid]))
        if claim.uuid in held
        else _with_debts(inputs, claim)
        for claim in claims
    ]


def _is_too_long(inputs: PlannerInput, claim: ExclusiveClaim, cache: int) -> bool:
    """Whether the VM has more ways than it asks for, or than it was granted."""
    granted = inputs.granted.get(claim.group, {}).get(cache, claim.ways_on(cache))
    return inputs.masks[claim.group].get(cache, 0).bit_count() > min(granted, claim.ways_on(cache))


def _with_debts(inputs: PlannerInput, claim: ExclusiveClaim) -> ExclusiveClaim:
    """Fill in what the VM was granted before and does not have any more."""
    if claim.group not in inputs.masks and not any(inputs.granted.get(claim.group, {}).values()):
        return claim
    lacking = [cache for cache in claim.caches if claim.has(cache) < claim.ways_on(cache)]
    if not lacking:
        return claim
    granted = {cache: earlier.of_vm(inputs, claim.group, cache, claim.ways_on(cache), claim.held) for cache in lacking}
    return replace(claim, owed={cache: grant for cache, grant in granted.items() if grant.ways > claim.has(cache)})
