# SPDX-License-Identifier: Apache-2.0
"""Deciding which VM gets what: first what VMs have, then what they had, then what they want more, then newcomers.

Each of these goes in order of arrival. If a VM lost something, no plan took it: another program's write did, or a cache
that went off and on. What was lost comes before anything new or larger (rule 4).

Nothing here depends on where masks lie, only on whether they fit. So a VM that one plan lets in, the next plan lets in
too, even if the first plan was interrupted anywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from vmqos.allocation import reasons
from vmqos.allocation.cache_ways import WantedMask
from vmqos.allocation.model import WhenFull
from vmqos.allocation.planner_input import PlannerInput
from vmqos.allocation.rights import earlier
from vmqos.allocation.rights.cache_budget import CacheBudget, budget_for
from vmqos.allocation.rights.claims import Claim, with_limit
from vmqos.allocation.rights.closids import kept_classes, most_others
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import DEFAULT_GROUP, class_request
from vmqos.reason import NO_REASON, Reason

Question = tuple[bool, tuple[tuple[int, int], ...]]
"""Whether a claim is shared, and its ways by cache: can a claim like that have these ways?"""


@dataclass(frozen=True, slots=True)
class Change:
    """A VM or a class is given more than it has.

    :ivar who: the VM's UUID, or the class's name.
    :ivar caches: the caches on which it is given more.
    :ivar given_back: whether it had that before.
    """

    who: str
    caches: frozenset[int]
    given_back: bool = False


Bar = tuple[str, bool]
"""The VM or class of a :class:`Change` that is not to be made, and whether this change gives back. If so, the VM or
class does not get back what it had before; if not, it gets nothing beyond that."""


@dataclass(slots=True)
class Admission:
    """What was decided so far; it is filled in VM by VM.

    :ivar budgets: what is promised on each cache.
    :ivar served: the VMs that have ways of their own after the plan, by UUID.
    :ivar classes: the classes that exist after the plan, with their caps; 0 for none.
    :ivar members: the class of each VM that is in one, by UUID.
    :ivar notes: why a VM does not get what it asks for, by UUID.
    :ivar changes: the VMs and classes that are given more than they have, in the order of the decisions.
    :ivar sharing: the VMs that the operator lets share because no CLOSID is left, by UUID.
    :ivar closids: how many more groups can be created, those of :attr:`kept` included.
    :ivar listed: the classes for each of which the operator keeps a CLOSID.
    :ivar kept: the listed classes that have no control group yet: one CLOSID is kept for each.
    :ivar freed: how many groups this plan removes whose CLOSIDs no request waits for.
    :ivar answered: the questions that were asked already, with the reason where the answer was no. Room only becomes
        less, so the answer stays no.
    :ivar fitting: the questions whose answer was yes, since the last change.
    """

    budgets: dict[int, CacheBudget]
    served: set[str] = field(default_factory=set)
    classes: dict[str, int] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Reason] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    sharing: set[str] = field(default_factory=set)
    closids: int = 0
    listed: frozenset[str] = frozenset()
    kept: set[str] = field(default_factory=set)
    freed: int = 0
    answered: dict[Question, Reason] = field(default_factory=dict)
    fitting: set[Question] = field(default_factory=set)


def admit(
    inputs: PlannerInput, claims: Sequence[Claim], barred: Collection[Bar] = (), frozen: Collection[int] = ()
) -> Admission:
    """Decide on all claims.

    :param claims: in order of arrival.
    :param barred: VMs and classes that get no more than they have: there is no safe order of steps for more.
    :param frozen: caches where no exclusive mask may move.
    """
    result = Admission({cache: _budget(inputs, cache, claims, cache in frozen) for cache in inputs.cache_ways})
    needed = {claim.group for claim in claims}
    taken = sum(group.holds_closid for group in inputs.groups.values())
    result.closids = max(0, inputs.capabilities.num_closids - taken)
    if inputs.policy.shared_classes:
        result.listed = frozenset(kept_classes(inputs.capabilities, inputs.policy))
    result.kept = set(result.listed - inputs.groups.keys())
    result.freed = sum(name not in needed for name in inputs.ours)
    _give_back(inputs, result, claims, barred)
    # A part of these promises is in force already, or was in force and is given back.
    in_force = {
        claim.uuid
        for claim in claims
        if (claim.group in inputs.groups if claim.shared else claim.held or claim.uuid in result.served)
        or (claim.keeps_group and claim.group in inputs.groups)
    }
    for claim in sorted(claims, key=lambda claim: claim.uuid not in in_force):
        if claim.shared:
            _join(inputs, result, claim, barred)
        elif claim.uuid in in_force:
            _grow(inputs, result, claim, barred)
        else:
            _place(inputs, result, claim, barred)
    return result


def _budget(inputs: PlannerInput, cache: int, claims: Iterable[Claim], frozen: bool) -> CacheBudget:
    """One cache with all grants on it that must not be taken away (rule 4)."""
    held, classes = [], {}
    for claim in claims:
        if cache in claim.held:
            held.append(WantedMask(claim.uuid, claim.has(cache), claim.held[cache]))
        elif claim.shared and cache in claim.caches:
            classes[claim.group] = claim.ways_on[cache]
    found = (earlier.of_class(inputs, group, cache, cap) for group, cap in classes.items())
    most = max((grant.ways for grant in found if not grant.guessed), default=0)
    cache_ways = inputs.cache_ways[cache]
    budget = budget_for(cache_ways, held, most, frozen)
    if budget.need.width < cache_ways.floor:
        # It is better for the host to stay on ways that were reserved since than to have too few ways.
        reserved = inputs.masks[DEFAULT_GROUP].get(cache, 0) & cache_ways.reserved
        budget = budget_for(cache_ways.with_company(reserved & cache_ways.every), held, most, frozen)
    return budget


def _give_back(inputs: PlannerInput, result: Admission, claims: Sequence[Claim], barred: Collection[Bar]) -> None:
    """Give back what was in force: all of it where it fits, otherwise as much as fits.

    All grants that are certain were in force at the same time, so they fit, unless a cache has less to give than it
    had. Where the layout does not show how much VMs had, all of them get the smallest mask before any gets more.
    """
    owed = [(claim, cache) for claim in claims if (claim.uuid, True) not in barred for cache in claim.owed]
    guesses = [(claim, cache) for claim, cache in owed if claim.owed[cache].guessed]
    for claim, cache in owed:
        if not claim.owed[cache].guessed:
            _return(inputs, result, claim, cache, claim.owed[cache].ways)
    for claim, cache in guesses:
        _return(inputs, result, claim, cache, inputs.cache_ways[cache].fewest)
    for claim, cache in guesses:
        if result.budgets[cache].takes(claim.uuid, claim.owed[cache].ways):
            _return(inputs, result, claim, cache, claim.owed[cache].ways)
    for claim, cache in guesses:
        _return(inputs, result, claim, cache, claim.owed[cache].ways)
    classes = {(claim.group, claim.caches): claim for claim in claims if claim.shared}
    for shared in classes.values():
        if shared.group in inputs.groups and (shared.group, True) not in barred:
            _return_to_class(inputs, result, shared)


def _return(inputs: PlannerInput, result: Admission, claim: Claim, cache: int, ways: int) -> None:
    """Give a VM back ``ways`` ways of a cache, or as many as there are."""
    budget, exists = result.budgets[cache], claim.group in inputs.groups
    most = min(ways, budget.most(claim.uuid))
    if most <= _length(budget, claim.uuid) or not (exists or claim.uuid in result.served or result.closids):
        return
    if claim.uuid not in result.served:
        result.served.add(claim.uuid)
        result.closids -= not exists
    budget.wanted_masks[claim.uuid] = WantedMask(claim.uuid, most, claim.held.get(cache, claim.near.get(cache, 0)))
    result.changes.append(Change(claim.uuid, frozenset({cache}), given_back=True))


def _return_to_class(inputs: PlannerInput, result: Admission, claim: Claim) -> None:
    """Give a class back what it may have had, or as much of it as there is."""
    for cache in claim.caches:
        budget, was = result.budgets[cache], earlier.of_class(inputs, claim.group, cache, claim.ways_on[cache])
        before = budget.need.width
        if was.guessed:
            budget.raise_pool(was.ways)
        if budget.need.width > before:
            result.changes.append(Change(claim.group, frozenset({cache}), given_back=True))


def _length(budget: CacheBudget, uuid: str) -> int:
    """How many ways a VM gets by what was decided so far."""
    if uuid in budget.stuck:
        return budget.stuck[uuid].bit_count()
    return budget.wanted_masks[uuid].length if uuid in budget.wanted_masks else 0


def _grow(inputs: PlannerInput, result: Admission, claim: Claim, barred: Collection[Bar]) -> None:
    """Keep what the VM has, and give it what it lacks if that fits on all of its caches."""
    result.served.add(claim.uuid)
    lacking = [cache for cache in claim.caches if _length(result.budgets[cache], claim.uuid) < claim.ways_on[cache]]
    if not lacking:
        return
    if (claim.uuid, False) in barred:
        result.notes[claim.uuid] = reasons.NO_SAFE_ORDER
    elif short := _short(result, claim, lacking):
        result.notes[claim.uuid] = reasons.shortage(inputs, result.budgets, short, claim.uuid)
    else:
        for cache in lacking:
            now = claim.held.get(cache, claim.near.get(cache, 0))
            result.budgets[cache].wanted_masks[claim.uuid] = WantedMask(claim.uuid, claim.ways_on[cache], now)
        result.changes.append(Change(claim.uuid, frozenset(lacking)))


def _short(result: Admission, claim: Claim, caches: Iterable[int]) -> dict[int, int]:
    """How many ways the VM asks for on each cache where they do not fit."""
    asked = {cache: claim.ways_on[cache] for cache in caches}
    return {cache: ways for cache, ways in asked.items() if not result.budgets[cache].takes(claim.uuid, ways)}


def _place(inputs: PlannerInput, result: Admission, claim: Claim, barred: Collection[Bar]) -> None:
    """Give a newcomer its ways on all of its caches, or nothing."""
    exists = claim.group in inputs.groups
    question = (claim.shared, tuple(claim.ways_on.items()))
    if (claim.uuid, False) in barred or (claim.owed and (claim.uuid, True) in barred):
        note = reasons.NO_SAFE_ORDER
    elif question in result.answered:
        note = result.answered[question]
    elif question not in result.fitting and (short := _short(result, claim, claim.caches)):
        note = result.answered[question] = reasons.shortage(inputs, result.budgets, short, claim.uuid)
    elif exists or result.closids > len(result.kept):
        result.closids -= not exists
        result.fitting.clear()
        for cache in claim.caches:
            wanted = WantedMask(claim.uuid, claim.ways_on[cache], claim.near.get(cache, 0))
            result.budgets[cache].wanted_masks[claim.uuid] = wanted
        result.served.add(claim.uuid)
        result.changes.append(Change(claim.uuid, frozenset(claim.caches)))
        return
    else:
        result.fitting.add(question)
        _without_closid(inputs, result, claim)
        return
    result.freed += exists
    result.notes[claim.uuid] = note


def _join(inputs: PlannerInput, result: Admission, claim: Claim, barred: Collection[Bar]) -> None:
    """Put the VM into the class of its promise; the pool grows for it where it can."""
    if claim.group not in result.classes:
        if claim.group not in inputs.groups:
            if not _may_be_made(inputs, result, claim.group):
                _without_closid(inputs, result, claim)
                return
            result.kept.discard(claim.group)
            result.closids -= 1
        result.classes[claim.group] = claim.ways
    result.members[claim.uuid] = claim.group
    question = (claim.shared, tuple(claim.ways_on.items()))
    if (claim.group, False) in barred or question in result.answered:
        return
    result.answered[question] = NO_REASON
    result.fitting.clear()
    before = {cache: result.budgets[cache].need.width for cache in claim.caches}
    for cache in claim.caches:
        result.budgets[cache].raise_pool(claim.ways_on[cache])
    if raised := frozenset(cache for cache in claim.caches if result.budgets[cache].need.width > before[cache]):
        result.changes.append(Change(claim.group, raised))


def _may_be_made(inputs: PlannerInput, result: Admission, group: str) -> bool:
    """Whether a CLOSID is left for a class that does not exist yet."""
    if group in result.kept:
        return result.closids > 0
    return result.closids > len(result.kept) and not _too_many_others(inputs, result)


def _too_many_others(inputs: PlannerInput, result: Admission) -> bool:
    """Whether there are already as many classes as there may be beside the listed ones."""
    most = most_others(inputs.capabilities, inputs.policy)
    return most is not None and sum(name not in result.listed for name in result.classes) >= most


def _without_closid(inputs: PlannerInput, result: Admission, claim: Claim) -> None:
    """No CLOSID is left: wait for one that this very plan frees, or do as the operator says (rule 9)."""
    bounded = claim.shared and claim.group not in result.kept and _too_many_others(inputs, result)
    if result.freed and not bounded:
        result.freed -= 1
        result.notes[claim.uuid] = reasons.WAITS_FOR_CLOSID
        return
    nearest = None
    if inputs.policy.when_full is WhenFull.SHARE:
        result.sharing.add(claim.uuid)
        nearest = _nearest(inputs, claim, result.classes)
        if nearest is not None:
            result.members[claim.uuid] = nearest
    if bounded:
        result.notes[claim.uuid] = reasons.too_many_classes(
            inputs, most_others(inputs.capabilities, inputs.policy), nearest
        )
    else:
        result.notes[claim.uuid] = reasons.no_closid(inputs, nearest, len(result.kept))


def _nearest(inputs: PlannerInput, claim: Claim, classes: Iterable[str]) -> str | None:
    """The class with the same cap, else the class with the next larger cap, else the one with the next smaller cap.

    Among classes with the same cap, the one with the smallest limit of bandwidth is taken. A class whose limit is
    smaller than the one asked for is never taken, and neither is a class with a cap where no cap is asked for.
    """
    limit = next(iter(claim.throttles.values()), None)
    ways = CacheRequest(ways=claim.ways or None, l2_ways=claim.l2 or None)
    wanted = with_limit(ways, inputs.capabilities.memory_bandwidth, limit)
    found = {name: grants for name in classes if (grants := class_request(name)) and _does_no_harm(grants, wanted)}
    return min(
        found,
        key=lambda name: (
            found[name].l3_ways < wanted.l3_ways,
            abs(found[name].l3_ways - wanted.l3_ways),
            _limit(found[name]),
        ),
        default=None,
    )


def _does_no_harm(grants: CacheRequest, wanted: CacheRequest) -> bool:
    """Whether a class can stand in for what is wanted: it sets no limit that was not asked for."""
    of_l2 = not grants.l2_ways or bool(wanted.l2_ways)
    return bool(grants.l3_ways) == bool(wanted.l3_ways) and of_l2 and _limit(grants) >= _limit(wanted)


def _limit(grants: CacheRequest) -> float:
    return grants.bandwidth_percent or grants.bandwidth_mbps or float("inf")
