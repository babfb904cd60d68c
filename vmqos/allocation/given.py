# SPDX-License-Identifier: Apache-2.0
"""What the plan gives each VM, compared with what it asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vmqos.allocation import reasons
from vmqos.allocation.admission import Admission
from vmqos.allocation.claims import Claim, ExclusiveClaim, SharedClaim
from vmqos.allocation.model import Allocation, PromiseState, Split
from vmqos.allocation.planner_input import PlannerInput
from vmqos.allocation.target import Target
from vmqos.group_names import DEFAULT_GROUP
from vmqos.reason import NO_REASON, Reason, joined
from vmqos.resctrl.bitmask import CapacityBitmask


def give(inputs: PlannerInput, claims: Sequence[Claim], admission: Admission, target: Target) -> dict[str, Allocation]:
    """What each claim gets, by the VM's UUID."""
    intruders: dict[tuple[str, int], tuple[str, ...]] = {
        (name, cache): tuple(_intruders(inputs, target, name, cache)) for name, cache in target.own
    }
    given = {}
    for claim in claims:
        if claim.uuid in admission.served and isinstance(claim, ExclusiveClaim):
            given[claim.uuid] = _exclusive(inputs, claim, admission, target, intruders)
        elif isinstance(claim, SharedClaim) and admission.members.get(claim.uuid) == claim.group:
            given[claim.uuid] = _shared(inputs, claim, target)
        elif claim.uuid in admission.sharing:
            group = admission.members.get(claim.uuid, DEFAULT_GROUP)
            masks = _masks(target, group, claim) if group != DEFAULT_GROUP else {}
            reason = admission.notes[claim.uuid]
            limits = target.throttles.get(group, {}) if claim.throttles else {}
            given[claim.uuid] = Allocation(PromiseState.DEGRADED, group, masks, reason, limits)
        else:
            given[claim.uuid] = Allocation(PromiseState.PENDING, reason=admission.notes[claim.uuid])
    return given


def with_the_rest(given: Allocation, unmet: Reason, remarks: Reason) -> Allocation:
    """The allocation of a whole request, made from the allocation of the part that the machine can give.

    :param unmet: what it can't give; empty where it can give everything.
    :param remarks: what it gives instead of exactly what is asked for.
    """
    state = PromiseState.DEGRADED if unmet and given.state is PromiseState.KEPT else given.state
    in_force = state is not PromiseState.PENDING
    reason = joined(unmet, given.reason, remarks if in_force else NO_REASON)
    return replace(given, state=state, reason=reason)


def _exclusive(
    inputs: PlannerInput,
    claim: ExclusiveClaim,
    admission: Admission,
    target: Target,
    intruders: Mapping[tuple[str, int], tuple[str, ...]],
) -> Allocation:
    """A VM with ways of its own: whether it has all of them, and whether they are its own."""
    mine = [cache for cache in claim.caches if (claim.group, cache) in target.own]
    got = {cache: target.masks[claim.group][cache] if cache in mine else 0 for cache in claim.caches}
    faults, remarks = list[Reason](), list[Reason]()
    has = {cache: mask.bit_count() for cache, mask in got.items()}
    asked = {cache: claim.ways_on(cache) for cache in has}
    if any(has[cache] < asked[cache] for cache in has):
        faults.append(reasons.grown(has, asked, admission.notes.get(claim.uuid, reasons.NO_SAFE_ORDER)))
    for cache in mine:
        cache_ways = inputs.cache_ways[cache]
        if others := intruders[claim.group, cache]:
            faults.append(reasons.overlapped(cache, got[cache], others))
        if got[cache] & cache_ways.shareable and not inputs.policy.use_shareable_ways:
            faults.append(reasons.on_io_ways(cache_ways, cache, got[cache]))
        if got[cache] & inputs.reserved(cache):
            remarks.append(reasons.on_reserved_ways(cache, got[cache]))
    masks = {cache: CapacityBitmask(got[cache]) for cache in mine}
    splits = _splits(inputs, target, claim, masks)
    remarks += (*_raised(inputs, claim), *_common(splits))
    state = PromiseState.DEGRADED if faults else PromiseState.KEPT
    reason = joined(*faults, *remarks)
    return Allocation(state, claim.group, masks, reason, claim.throttles, splits)


def _shared(inputs: PlannerInput, claim: SharedClaim, target: Target) -> Allocation:
    """A VM in the class of its promise: whether the class has its whole cap."""
    masks = _masks(target, claim.group, claim)
    got = {cache: mask.count for cache, mask in masks.items()}
    faults = []
    asked = {cache: claim.ways_on(cache) for cache in got}
    if any(got[cache] < asked[cache] for cache in got):
        faults.append(reasons.capped(got, asked))
    if claim.asked > claim.ways:
        faults.append(reasons.more_than_all(claim.asked, claim.ways))
    if claim.asked_l2 > claim.l2:
        faults.append(reasons.more_than_all(claim.asked_l2, claim.l2, 2))
    splits = _splits(inputs, target, claim, masks)
    remarks = (*_raised(inputs, claim), *_common(splits))
    state = PromiseState.DEGRADED if faults else PromiseState.KEPT
    reason = joined(*faults, *remarks)
    return Allocation(state, claim.group, masks, reason, claim.throttles, splits)


def _common(splits: Mapping[int, Split]) -> Iterator[Reason]:
    """The ways that both code and data fill, although the VM asked for them apart: the mask is too small for both."""
    common = {cache: parts.code & parts.data for cache, parts in splits.items() if not parts.is_apart}
    if common:
        yield reasons.parts_in_common({cache: ways.count for cache, ways in common.items()})


def _raised(inputs: PlannerInput, claim: Claim) -> Iterator[Reason]:
    """What was rounded up to the smallest mask."""
    for asked, ways, level in ((claim.asked, claim.ways, 3), (claim.asked_l2, claim.l2, 2)):
        if asked < ways:
            yield reasons.raised(asked, ways, inputs.fewest(level), level)


def _splits(
    inputs: PlannerInput, target: Target, claim: Claim, masks: Mapping[int, CapacityBitmask]
) -> dict[int, Split]:
    """The parts of the masks that a VM asked for apart."""
    return target.splits(inputs, claim.group, {cache: mask.bits for cache, mask in masks.items()}) if claim.code else {}


def _masks(target: Target, group: str, claim: Claim) -> dict[int, CapacityBitmask]:
    return {cache: CapacityBitmask(target.masks[group][cache]) for cache in claim.caches}


def _intruders(inputs: PlannerInput, target: Target, name: str, cache: int) -> Iterator[str]:
    """The groups that have ways of an exclusive mask in the end."""
    mask = target.masks[name][cache]
    yield from inputs.foreigners(cache, mask)
    yield from (other for other, masks in target.masks.items() if other != name and masks[cache] & mask)
