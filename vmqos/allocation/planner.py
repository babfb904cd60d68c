# SPDX-License-Identifier: Apache-2.0
"""Making the plan: it leads from the groups as they are to the promises that can be kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmqos.allocation import given
from vmqos.allocation.masks import steps
from vmqos.allocation.masks.route import Route
from vmqos.allocation.masks.target import Target, build, route
from vmqos.allocation.model import Allocation, Layout, Plan, Policy, RemoveGroup, Request, Step
from vmqos.allocation.planner_input import PlannerInput, read_input
from vmqos.allocation.rights import earlier
from vmqos.allocation.rights.admission import Admission, Bar, admit
from vmqos.allocation.rights.claims import Claim, read
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import DEFAULT_GROUP
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import Capabilities

_NOBODY = "00000000-0000-0000-0000-000000000000"


def plan(
    capabilities: Capabilities,
    layout: Layout,
    requests: Sequence[Request],
    policy: Policy,
    granted: Mapping[str, Mapping[int, int]] | None = None,
    before: Mapping[str, Mapping[int, CapacityBitmask]] | None = None,
    gives_back: bool = False,
) -> Plan:
    """Decide which VM gets which ways and how much memory bandwidth, and which steps give it.

    The same values give the same plan; the order of the groups and requests does not matter. A layout that is as it
    should be gives a plan without steps. Where no VM has a promise, the plan touches nothing, unless the default group
    has ways that the operator reserved, or lacks ways that an agent took from it.

    :param requests: the requests of the running VMs that ask for something; the group of any other VM is retired.
    :param granted: :attr:`Plan.granted` of the last plan that was carried out. Without it, the planner derives the
        earlier grants from the layout, as far as the layout shows them (:mod:`vmqos.allocation.rights.earlier`).
    :param before: where the masks are to lie again, by group and cache, because they were moved for a while only. On a
        cache where a mask is missing here, or has another length than is due, none goes back; nor if there is no safe
        order of steps for it.
    :param gives_back: whether the default group may lack ways that an agent took from it for a group that is not there.
    """
    inputs = read_input(capabilities, layout, policy, requests, granted)
    claims = read(inputs)
    back = _as_before(inputs, claims, before) if before else None
    admission, target, prepare = back or _arrange(inputs, claims, gives_back)
    return Plan(
        prepare=prepare,
        allocations=given.give(inputs, claims, admission, target),
        retire=tuple(RemoveGroup(name) for name in target.retired),
        granted=_granted(inputs, claims, target),
    )


def _granted(inputs: PlannerInput, claims: Sequence[Claim], target: Target) -> dict[str, dict[int, int]]:
    """How many ways each group is granted, by cache, for the next plan.

    Ways that were granted and could not be given back stay owed. So do ways on a cache that is offline. The number is 0
    where nothing was granted on a cache that is online.
    """
    found: dict[str, dict[int, int]] = {}
    nothing = dict.fromkeys(inputs.cache_ways, 0)
    members: set[tuple[str, tuple[int, ...]]] = set()
    for claim in claims:
        # Where there are many VMs, most have nothing yet, or are in a class with others: those need no work here.
        if claim.group not in target.masks and claim.group not in inputs.granted:
            found[claim.group] = nothing
            continue
        if (claim.group, claim.caches) in members:
            continue
        members.add((claim.group, claim.caches))
        known = found.setdefault(claim.group, {**inputs.granted.get(claim.group, {}), **nothing})
        for cache in claim.caches:
            most = claim.ways_on[cache]
            if claim.shared:
                before, is_given = earlier.of_class(inputs, claim.group, cache, most), claim.group in target.masks
            else:
                before, is_given = claim.owed.get(cache, earlier.NONE), (claim.group, cache) in target.own
            now = min(most, target.masks[claim.group][cache].bit_count()) if is_given else 0
            known[cache] = max(known[cache], now, claim.has(cache), 0 if before.guessed else before.ways)
    return found


def whatif(
    capabilities: Capabilities,
    layout: Layout,
    requests: Sequence[Request],
    policy: Policy,
    wants: CacheRequest,
    reach: frozenset[int],
) -> tuple[Allocation, Plan]:
    """What one more VM would get now, and the plan that would be carried out for it and all others.

    :param requests: the requests of the VMs that run; the additional VM comes after them.
    :param wants: what the additional VM asks for.
    :param reach: the caches that the additional VM could run on.
    """
    arrival = max((request.arrival for request in requests), default=0) + 1
    newcomer = Request(_NOBODY, wants, reach, arrival)
    found = plan(capabilities, layout, (*requests, newcomer), policy)
    return found.allocations[_NOBODY], found


def _as_before(
    inputs: PlannerInput, claims: Sequence[Claim], before: Mapping[str, Mapping[int, CapacityBitmask]]
) -> tuple[Admission, Target, tuple[Step, ...]] | None:
    """Decide, and have the masks lie again where they lay; ``None`` if there is no safe order of steps for that."""
    admission = admit(inputs, claims)
    if not admission.served:
        return None
    places = {name: {cache: mask.bits for cache, mask in masks.items()} for name, masks in before.items()}
    target = build(inputs, claims, admission, {}, places)
    try:
        return admission, target, steps.prepare(inputs, target)
    except steps.NoSafeOrder:
        return None


def _arrange(
    inputs: PlannerInput, claims: Sequence[Claim], gives_back: bool
) -> tuple[Admission, Target, tuple[Step, ...]]:
    """Decide, place the masks, and order the steps.

    Where there is no safe order, search for a packing that can be reached; where there is none, decide again without
    what was given last.
    """
    routes: dict[int, Route] = {}
    barred: set[Bar] = set()
    frozen: set[int] = set()
    while True:
        admission = admit(inputs, claims, barred, frozen)
        target = build(inputs, claims, admission, routes)
        promised = admission.served or admission.classes or inputs.ours or gives_back
        default = inputs.masks[DEFAULT_GROUP]
        if not promised and not any(mask & inputs.cache_ways[cache].reserved for cache, mask in default.items()):
            return admission, target, ()
        try:
            return admission, target, steps.prepare(inputs, target)
        except steps.NoSafeOrder as error:
            if error.cache not in routes and (found := route(inputs, claims, admission, error.cache)) is not None:
                routes[error.cache] = found
                continue
            routes.clear()
            late = next((change for change in reversed(admission.changes) if error.cache in change.caches), None)
            if late is not None:
                barred.add((late.who, late.given_back))
            elif error.cache not in frozen:
                frozen.add(error.cache)
            else:
                return admission, target, ()
