# SPDX-License-Identifier: Apache-2.0
"""Making the plan: it leads from the groups as they are to the promises that can be kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmqos.allocation import caches, earlier, given, steps
from vmqos.allocation.admission import Admission, Bar, admit
from vmqos.allocation.claims import Claim, SharedClaim, in_order, read, remarks, unmet
from vmqos.allocation.model import Allocation, Layout, Plan, Policy, PromiseState, Request, Step
from vmqos.allocation.planner_input import PlannerInput, read_input
from vmqos.allocation.route import Route
from vmqos.allocation.target import Target, build, route
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import Owner
from vmqos.resctrl.capabilities import CacheResource, Capabilities

_NOBODY = "00000000-0000-0000-0000-000000000000"


def plan(
    capabilities: Capabilities,
    layout: Layout,
    requests: Sequence[Request],
    policy: Policy,
    granted: Mapping[str, Mapping[int, int]] | None = None,
) -> Plan:
    """Decide which VM gets which ways and how much memory bandwidth, and which steps give it.

    The same values give the same plan; the order of the groups and requests does not matter. A layout that is as it
    should be gives a plan without steps. Where no VM has a promise, the plan touches nothing, unless the default group
    has ways that the operator reserved.

    :param requests: the requests of the running VMs that ask for something; the group of any other VM is retired.
    :param granted: :attr:`Plan.granted` of the last plan that was carried out. Without it, the planner derives the
        earlier grants from the layout, as far as the layout shows them (:mod:`vmqos.allocation.earlier`).
    """
    ordered = in_order(requests)
    inputs = read_input(capabilities, capabilities.l3, layout, policy, _l2(capabilities, layout, ordered), granted)
    claims = read(inputs, ordered)
    admission, target, prepare = _arrange(inputs, claims)
    allocations = given.give(inputs, claims, admission, target)
    return Plan(
        prepare=prepare,
        allocations={request.uuid: _judge(inputs, request, allocations.get(request.uuid)) for request in ordered},
        retire=steps.retire(target),
        granted=_granted(inputs, claims, target),
    )


def _granted(inputs: PlannerInput, claims: Sequence[Claim], target: Target) -> dict[str, dict[int, int]]:
    """How many ways each group is granted, by cache, for the next plan."""
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
        now, before = {}, {}
        for cache in claim.caches:
            mask = target.masks.get(claim.group, {}).get(cache, 0)
            if isinstance(claim, SharedClaim):
                now[cache] = min(claim.ways_on(cache), mask.bit_count())
                was = earlier.of_class(inputs, claim.group, cache, claim.ways_on(cache))
                before[cache] = 0 if was.guessed else was.ways
            else:
                now[cache] = min(claim.ways_on(cache), mask.bit_count()) if (claim.group, cache) in target.own else 0
                owed = claim.owed.get(cache, earlier.NONE)
                before[cache] = max(claim.has(cache), 0 if owed.guessed else owed.ways)
        more = earlier.remember(inputs, claim.group, now, before)
        known = found.setdefault(claim.group, {})
        known |= {cache: max(ways, known.get(cache, 0)) for cache, ways in more.items()}
    return found


def _l2(capabilities: Capabilities, layout: Layout, requests: Sequence[Request]) -> CacheResource | None:
    """The L2, if a VM wants some of it, or if a group that we may write has less than all of it.

    A machine has many L2s, and mostly no VM has to do with them.
    """
    l2 = capabilities.l2
    if l2 is None or any(request.wants.l2_ways is not None for request in requests):
        return l2
    ours = (group.masks for group in layout.groups if group.owner is not Owner.FOREIGN)
    is_given = any(mask != l2.cbm_mask for masks in ours for mask in caches.of_level(2, masks).values())
    return l2 if is_given else None


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


def _arrange(inputs: PlannerInput, claims: Sequence[Claim]) -> tuple[Admission, Target, tuple[Step, ...]]:
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
        promised = admission.served or admission.classes or inputs.named(Owner.VM, Owner.CLASS)
        if not promised and not inputs.reserve_is_used:
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
                barred.add(late.bar)
            elif error.cache not in frozen:
                frozen.add(error.cache)
            else:
                return admission, target, ()


def _judge(inputs: PlannerInput, request: Request, allocation: Allocation | None) -> Allocation:
    missing = unmet(inputs, request)
    if allocation is None:
        state = PromiseState.PENDING if missing else PromiseState.NONE
        return Allocation(state, reason=missing)
    return given.with_the_rest(allocation, missing, remarks(inputs, request))
