# SPDX-License-Identifier: Apache-2.0
"""What the plan gives each VM, compared with what it asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vmqos.allocation import reasons
from vmqos.allocation.admission import Admission
from vmqos.allocation.claims import Claim, ExclusiveClaim, SharedClaim
from vmqos.allocation.model import DEFAULT_GROUP, PromiseState, Verdict
from vmqos.allocation.target import Target
from vmqos.allocation.world import World
from vmqos.resctrl.bitmask import CapacityBitmask


def give(world: World, claims: Sequence[Claim], admission: Admission, target: Target) -> dict[str, Verdict]:
    """The verdict on each claim, by the VM's UUID."""
    intruders: dict[tuple[str, int], tuple[str, ...]] = {
        (name, cache): tuple(_intruders(world, target, name, cache)) for name, cache in target.own
    }
    verdicts = {}
    for claim in claims:
        if claim.uuid in admission.served and isinstance(claim, ExclusiveClaim):
            verdicts[claim.uuid] = _exclusive(world, claim, admission, target, intruders)
        elif isinstance(claim, SharedClaim) and admission.members.get(claim.uuid) == claim.group:
            verdicts[claim.uuid] = _shared(world, claim, target)
        elif claim.uuid in admission.sharing:
            group = admission.members.get(claim.uuid, DEFAULT_GROUP)
            masks = _masks(target, group, claim) if group != DEFAULT_GROUP else {}
            reason = admission.notes[claim.uuid]
            verdicts[claim.uuid] = Verdict(claim.uuid, PromiseState.DEGRADED, group, masks, reason)
        else:
            verdicts[claim.uuid] = Verdict(claim.uuid, PromiseState.PENDING, reason=admission.notes[claim.uuid])
    return verdicts


def _exclusive(
    world: World,
    claim: ExclusiveClaim,
    admission: Admission,
    target: Target,
    intruders: Mapping[tuple[str, int], tuple[str, ...]],
) -> Verdict:
    """A VM with ways of its own: whether it has all of them, and whether they are its own."""
    mine = [cache for cache in claim.caches if (claim.group, cache) in target.own]
    got = {cache: target.masks[claim.group][cache] if cache in mine else 0 for cache in claim.caches}
    faults, remarks = [], []
    has = {cache: mask.bit_count() for cache, mask in got.items()}
    if min(has.values()) < claim.ways:
        faults.append(reasons.grown(has, claim.ways, admission.notes.get(claim.uuid, reasons.NO_SAFE_ORDER)))
    for cache in mine:
        line = world.lines[cache]
        if others := intruders[claim.group, cache]:
            faults.append(reasons.overlapped(cache, got[cache], others))
        if got[cache] & line.shareable and not world.policy.use_shareable_ways:
            faults.append(reasons.on_io_ways(line, cache, got[cache]))
        if got[cache] & world.policy.reserved_ways.bits:
            remarks.append(reasons.on_reserved_ways(cache, got[cache]))
    if claim.asked < world.fewest:
        remarks.append(reasons.raised(claim.asked, world.fewest))
    state = PromiseState.DEGRADED if faults else PromiseState.KEPT
    masks = {cache: CapacityBitmask(got[cache]) for cache in mine}
    return Verdict(claim.uuid, state, claim.group, masks, "; ".join((*faults, *remarks)))


def _shared(world: World, claim: SharedClaim, target: Target) -> Verdict:
    """A VM in the class of its promise: whether the class has its whole cap."""
    masks = _masks(target, claim.group, claim)
    got = {cache: mask.count for cache, mask in masks.items()}
    faults = []
    if min(got.values()) < claim.ways:
        faults.append(reasons.capped(got, claim.ways))
    if claim.asked > claim.ways:
        faults.append(reasons.more_than_all(claim.asked, claim.ways))
    remarks = [reasons.raised(claim.asked, world.fewest)] if claim.asked < world.fewest else []
    state = PromiseState.DEGRADED if faults else PromiseState.KEPT
    return Verdict(claim.uuid, state, claim.group, masks, "; ".join((*faults, *remarks)))


def _masks(target: Target, group: str, claim: Claim) -> dict[int, CapacityBitmask]:
    return {cache: CapacityBitmask(target.masks[group][cache]) for cache in claim.caches}


def _intruders(world: World, target: Target, name: str, cache: int) -> Iterator[str]:
    """The groups that have ways of an exclusive mask in the end."""
    mask = target.masks[name][cache]
    yield from world.foreigners(cache, mask)
    yield from (other for other, masks in target.masks.items() if other != name and masks[cache] & mask)
