# SPDX-License-Identifier: Apache-2.0
"""What the plan gives each VM, compared with what it asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vmqos.allocation import caches, reasons
from vmqos.allocation.masks.target import Target
from vmqos.allocation.model import Allocation, PromiseState, Request
from vmqos.allocation.planner_input import PlannerInput
from vmqos.allocation.rights.admission import Admission
from vmqos.allocation.rights.claims import Claim, bandwidth, unmet
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import DEFAULT_GROUP, Owner
from vmqos.reason import NO_REASON, Reason, joined
from vmqos.resctrl.bitmask import CapacityBitmask


def give(inputs: PlannerInput, claims: Sequence[Claim], admission: Admission, target: Target) -> dict[str, Allocation]:
    """What each request gets, by the VM's UUID: what its claim gets, and what this machine can give to no VM."""
    claim_of = {claim.uuid: claim for claim in claims}
    given, found = {}, dict[tuple[CacheRequest, frozenset[int]] | str, Allocation]()
    for request in inputs.requests:
        claim = claim_of.get(request.uuid)
        in_class = claim is not None and claim.shared and admission.members.get(request.uuid) == claim.group
        # Members of a class get the same for the same request.
        alike = (request.wants, request.caches) if in_class else request.uuid
        if alike not in found:
            found[alike] = _of_one(inputs, request, claim, admission, target)
        given[request.uuid] = found[alike]
    return given


def _of_one(
    inputs: PlannerInput, request: Request, claim: Claim | None, admission: Admission, target: Target
) -> Allocation:
    """What one request gets."""
    uuid, missing = request.uuid, unmet(inputs, request)
    if claim is None:
        return Allocation(PromiseState.PENDING if missing else PromiseState.NONE, reason=missing)
    if uuid in admission.served:
        found = _exclusive(inputs, claim, admission, target)
    elif claim.shared and admission.members.get(uuid) == claim.group:
        found = _shared(inputs, claim, target)
    elif uuid in admission.sharing:
        found = _instead(claim, admission, target)
    else:
        found = Allocation(PromiseState.PENDING, reason=admission.notes[uuid])
    state = PromiseState.DEGRADED if missing and found.state is PromiseState.KEPT else found.state
    pending = state is PromiseState.PENDING
    remark = NO_REASON if pending else bandwidth(inputs.capabilities, request.wants).remark
    return replace(found, state=state, reason=joined(missing, found.reason, remark))


def _exclusive(inputs: PlannerInput, claim: Claim, admission: Admission, target: Target) -> Allocation:
    """A VM with ways of its own: whether it has all of them, and whether they are its own."""
    mine = {cache: target.masks[claim.group][cache] for cache in claim.caches if (claim.group, cache) in target.own}
    faults, remarks = list[Reason](), list[Reason]()
    has = {cache: mine.get(cache, 0).bit_count() for cache in claim.caches}
    asked = {cache: claim.ways_on[cache] for cache in has}
    if any(has[cache] < asked[cache] for cache in has):
        faults.append(reasons.grown(has, asked, admission.notes.get(claim.uuid, reasons.NO_SAFE_ORDER)))
    for cache, mask in mine.items():
        cache_ways = inputs.cache_ways[cache]
        others = [name for name in inputs.names[Owner.FOREIGN] if inputs.masks[name].get(cache, 0) & mask]
        others += [name for name, masks in target.masks.items() if name != claim.group and masks[cache] & mask]
        if others:
            faults.append(reasons.overlapped(cache, mask, others))
        if mask & cache_ways.shareable and not inputs.policy.use_shareable_ways:
            faults.append(reasons.on_io_ways(cache_ways, cache, mask))
        if mask & cache_ways.reserved:
            remarks.append(reasons.on_reserved_ways(cache, mask))
    return _allocation(inputs, claim, target, mine, faults, remarks)


def _shared(inputs: PlannerInput, claim: Claim, target: Target) -> Allocation:
    """A VM in the class of its promise: whether the class has its whole cap."""
    masks = {cache: target.masks[claim.group][cache] for cache in claim.caches}
    faults = []
    got = {cache: mask.bit_count() for cache, mask in masks.items()}
    asked = {cache: claim.ways_on[cache] for cache in got}
    if any(got[cache] < asked[cache] for cache in got):
        faults.append(reasons.capped(got, asked))
    if claim.asked > claim.ways:
        faults.append(reasons.more_than_all(claim.asked, claim.ways))
    if claim.asked_l2 > claim.l2:
        faults.append(reasons.more_than_all(claim.asked_l2, claim.l2, 2))
    return _allocation(inputs, claim, target, masks, faults, [])


def _instead(claim: Claim, admission: Admission, target: Target) -> Allocation:
    """A VM for which no CLOSID is left, in another class or in the default group."""
    group, masks = admission.members.get(claim.uuid, DEFAULT_GROUP), {}
    if group != DEFAULT_GROUP:
        masks = {cache: CapacityBitmask(target.masks[group][cache]) for cache in claim.caches}
    limits = target.throttles.get(group, {}) if claim.throttles else {}
    return Allocation(PromiseState.DEGRADED, group, masks, admission.notes[claim.uuid], limits)


def _allocation(
    inputs: PlannerInput,
    claim: Claim,
    target: Target,
    masks: Mapping[int, int],
    faults: Sequence[Reason],
    remarks: Sequence[Reason],
) -> Allocation:
    """The allocation of a VM whose promise is in force, in part at least.

    :param faults: why it is in force in part only.
    :param remarks: what else there is to say of its masks.
    """
    told = [*faults, *remarks]
    for asked, ways, level in ((claim.asked, claim.ways, 3), (claim.asked_l2, claim.l2, 2)):
        if asked < ways:
            fewest = next(inputs.cache_ways[cache].fewest for cache in claim.caches if caches.level(cache) == level)
            told.append(reasons.raised(asked, ways, fewest, level))
    # Code and data have ways in common although the VM asked for them apart where the mask is too small for both.
    splits = target.splits(inputs, claim.group, masks) if claim.code or claim.parts_on else {}
    common = {cache: parts.code & parts.data for cache, parts in splits.items() if not parts.is_apart}
    if common:
        told.append(reasons.parts_in_common({cache: ways.count for cache, ways in common.items()}))
    state = PromiseState.DEGRADED if faults else PromiseState.KEPT
    whole = {cache: CapacityBitmask(mask) for cache, mask in masks.items()}
    return Allocation(state, claim.group, whole, joined(*told), claim.throttles, splits)
