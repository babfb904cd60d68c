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

from vmqos.allocation import earlier, reasons, throttle
from vmqos.allocation.claims import Claim, ExclusiveClaim, SharedClaim
from vmqos.allocation.closids import kept_classes, most_others
from vmqos.allocation.model import WhenFull
from vmqos.allocation.packing import Piece
from vmqos.allocation.room import Room, furnish
from vmqos.allocation.world import World
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import DEFAULT_GROUP, Owner, class_request
from vmqos.reason import NO_REASON, Reason

Question = tuple[type, tuple[int, ...], int, int]
"""The kind of a claim, its caches, its L3 ways and its L2 ways: can a claim like that have these ways?"""


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

    @property
    def bar(self) -> Bar:
        """What has to be barred so that the next decision does not give this."""
        return self.who, self.given_back


Bar = tuple[str, bool]
"""The VM or class that gets no more than it has. ``True``: it does not get back what it had before; ``False``: it gets
nothing beyond that."""


@dataclass(slots=True)
class Admission:
    """What was decided so far; it is filled in VM by VM.

    :ivar rooms: what is promised on each cache.
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

    rooms: dict[int, Room]
    served: dict[str, ExclusiveClaim] = field(default_factory=dict)
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
    world: World, claims: Sequence[Claim], barred: Collection[Bar] = (), frozen: Collection[int] = ()
) -> Admission:
    """Decide on all claims.

    :param claims: in order of arrival.
    :param barred: VMs and classes that get no more than they have: there is no safe order of steps for more.
    :param frozen: caches where no exclusive mask may move.
    """
    exclusive = [claim for claim in claims if isinstance(claim, ExclusiveClaim)]
    shared = [claim for claim in claims if isinstance(claim, SharedClaim)]
    result = Admission({cache: _room(world, cache, exclusive, shared, cache in frozen) for cache in world.lines})
    needed = {claim.group for claim in claims}
    result.closids = max(0, world.capabilities.num_closids - sum(group.holds_closid for group in world.groups.values()))
    result.listed = frozenset(kept_classes(world.capabilities, world.policy))
    result.kept = set(result.listed - world.groups.keys())
    result.freed = sum(name not in needed for name in world.named(Owner.VM, Owner.CLASS))
    _give_back(world, result, claims, barred)
    for claim in sorted(claims, key=lambda claim: not _is_kept(world, result, claim)):
        if isinstance(claim, SharedClaim):
            _join(world, result, claim, barred)
        elif _is_kept(world, result, claim):
            _grow(world, result, claim, barred)
        else:
            _place(world, result, claim, barred)
    return result


def _is_kept(world: World, result: Admission, claim: Claim) -> bool:
    """Whether a part of the promise is in force already, or was in force and is given back."""
    if isinstance(claim, SharedClaim):
        return claim.group in world.groups
    return bool(claim.held) or claim.uuid in result.served


def _room(
    world: World, cache: int, exclusive: Iterable[ExclusiveClaim], shared: Iterable[SharedClaim], frozen: bool
) -> Room:
    """One cache with all grants on it that must not be taken away (rule 4)."""
    classes = {claim.group: claim.ways_on(cache) for claim in shared if cache in claim.caches}
    found = (earlier.of_class(world, group, cache, cap) for group, cap in classes.items())
    granted = [grant.ways for grant in found if not grant.guessed]
    held = [Piece(claim.uuid, claim.has(cache), claim.held[cache]) for claim in exclusive if cache in claim.held]
    line, most, floor = world.lines[cache], max(granted, default=0), world.floor(cache)
    room = furnish(line, held, floor, most, frozen)
    if room.need.width < floor:
        # It is better for the host to stay on ways that were reserved since than to have too few ways.
        reserved = world.masks[DEFAULT_GROUP].get(cache, 0) & world.reserved(cache)
        room = furnish(line.with_company(reserved & line.every), held, floor, most, frozen)
    return room


def _give_back(world: World, result: Admission, claims: Sequence[Claim], barred: Collection[Bar]) -> None:
    """Give back what was in force: all of it where it fits, otherwise as much as fits.

    All grants that are certain were in force at the same time, so they fit, unless a cache has less to give than it
    had. Where the layout does not show how much VMs had, all of them get the smallest mask before any gets more.
    """
    owed = [
        (claim, cache)
        for claim in claims
        if isinstance(claim, ExclusiveClaim) and (claim.uuid, True) not in barred
        for cache in claim.owed
    ]
    guesses = [(claim, cache) for claim, cache in owed if claim.owed[cache].guessed]
    for claim, cache in owed:
        if not claim.owed[cache].guessed:
            _return(world, result, claim, cache, claim.owed[cache].ways)
    for claim, cache in guesses:
        _return(world, result, claim, cache, world.lines[cache].fewest)
    for claim, cache in guesses:
        if result.rooms[cache].takes(claim.uuid, claim.owed[cache].ways):
            _return(world, result, claim, cache, claim.owed[cache].ways)
    for claim, cache in guesses:
        _return(world, result, claim, cache, claim.owed[cache].ways)
    classes = {(claim.group, claim.caches): claim for claim in claims if isinstance(claim, SharedClaim)}
    for shared in classes.values():
        if shared.group in world.groups and (shared.group, True) not in barred:
            _return_to_class(world, result, shared)


def _return(world: World, result: Admission, claim: ExclusiveClaim, cache: int, ways: int) -> None:
    """Give a VM back ``ways`` ways of a cache, or as many as there are."""
    room, exists = result.rooms[cache], claim.group in world.groups
    most = min(ways, room.most(claim.uuid))
    if most <= _length(room, claim.uuid) or not (exists or claim.uuid in result.served or result.closids):
        return
    if claim.uuid not in result.served:
        result.served[claim.uuid] = claim
        result.closids -= not exists
    room.pieces[claim.uuid] = Piece(claim.uuid, most, claim.held.get(cache, claim.near.get(cache, 0)))
    result.changes.append(Change(claim.uuid, frozenset({cache}), given_back=True))


def _return_to_class(world: World, result: Admission, claim: SharedClaim) -> None:
    """Give a class back what it may have had, or as much of it as there is."""
    for cache in claim.caches:
        room, was = result.rooms[cache], earlier.of_class(world, claim.group, cache, claim.ways_on(cache))
        before = room.need.width
        if was.guessed:
            room.raise_pool(was.ways)
        if room.need.width > before:
            result.changes.append(Change(claim.group, frozenset({cache}), given_back=True))


def _length(room: Room, uuid: str) -> int:
    """How many ways a VM gets by what was decided so far."""
    if uuid in room.stuck:
        return room.stuck[uuid].bit_count()
    return room.pieces[uuid].length if uuid in room.pieces else 0


def _grow(world: World, result: Admission, claim: ExclusiveClaim, barred: Collection[Bar]) -> None:
    """Keep what the VM has, and give it what it lacks if that fits on all of its caches."""
    result.served[claim.uuid] = claim
    lacking = [cache for cache in claim.caches if _length(result.rooms[cache], claim.uuid) < claim.ways_on(cache)]
    if not lacking:
        return
    if (claim.uuid, False) in barred:
        result.notes[claim.uuid] = reasons.NO_SAFE_ORDER
    elif short := _short(result, claim, lacking):
        result.notes[claim.uuid] = reasons.shortage(world, result.rooms, short, claim.uuid)
    else:
        for cache in lacking:
            now = claim.held.get(cache, claim.near.get(cache, 0))
            result.rooms[cache].pieces[claim.uuid] = Piece(claim.uuid, claim.ways_on(cache), now)
        result.changes.append(Change(claim.uuid, frozenset(lacking)))


def _short(result: Admission, claim: ExclusiveClaim, caches: Iterable[int]) -> dict[int, int]:
    """How many ways the VM asks for on each cache where they do not fit."""
    asked = {cache: claim.ways_on(cache) for cache in caches}
    return {cache: ways for cache, ways in asked.items() if not result.rooms[cache].takes(claim.uuid, ways)}


def _place(world: World, result: Admission, claim: ExclusiveClaim, barred: Collection[Bar]) -> None:
    """Give a newcomer its ways on all of its caches, or nothing."""
    exists = claim.group in world.groups
    question = (ExclusiveClaim, claim.caches, claim.ways, claim.l2)
    if (claim.uuid, False) in barred or (claim.owed and (claim.uuid, True) in barred):
        note = reasons.NO_SAFE_ORDER
    elif question in result.answered:
        note = result.answered[question]
    elif question not in result.fitting and (short := _short(result, claim, claim.caches)):
        note = result.answered[question] = reasons.shortage(world, result.rooms, short, claim.uuid)
    elif exists or result.closids > len(result.kept):
        result.closids -= not exists
        result.fitting.clear()
        for cache in claim.caches:
            piece = Piece(claim.uuid, claim.ways_on(cache), claim.near.get(cache, 0))
            result.rooms[cache].pieces[claim.uuid] = piece
        result.served[claim.uuid] = claim
        result.changes.append(Change(claim.uuid, frozenset(claim.caches)))
        return
    else:
        result.fitting.add(question)
        _without_closid(world, result, claim)
        return
    result.freed += exists
    result.notes[claim.uuid] = note


def _join(world: World, result: Admission, claim: SharedClaim, barred: Collection[Bar]) -> None:
    """Put the VM into the class of its promise; the pool grows for it where it can."""
    if claim.group not in result.classes:
        if claim.group not in world.groups:
            if not _may_be_made(world, result, claim.group):
                _without_closid(world, result, claim)
                return
            result.kept.discard(claim.group)
            result.closids -= 1
        result.classes[claim.group] = claim.ways
    result.members[claim.uuid] = claim.group
    question = (SharedClaim, claim.caches, claim.ways, claim.l2)
    if (claim.group, False) in barred or question in result.answered:
        return
    result.answered[question] = NO_REASON
    result.fitting.clear()
    before = {cache: result.rooms[cache].need.width for cache in claim.caches}
    for cache in claim.caches:
        result.rooms[cache].raise_pool(claim.ways_on(cache))
    if raised := frozenset(cache for cache in claim.caches if result.rooms[cache].need.width > before[cache]):
        result.changes.append(Change(claim.group, raised))


def _may_be_made(world: World, result: Admission, group: str) -> bool:
    """Whether a CLOSID is left for a class that does not exist yet."""
    if group in result.kept:
        return result.closids > 0
    return result.closids > len(result.kept) and not _too_many_others(world, result)


def _too_many_others(world: World, result: Admission) -> bool:
    """Whether there are already as many classes as there may be beside the listed ones."""
    most = most_others(world.capabilities, world.policy)
    return most is not None and sum(name not in result.listed for name in result.classes) >= most


def _without_closid(world: World, result: Admission, claim: Claim) -> None:
    """No CLOSID is left: wait for one that this very plan frees, or do as the operator says (rule 9)."""
    bounded = isinstance(claim, SharedClaim) and claim.group not in result.kept and _too_many_others(world, result)
    if result.freed and not bounded:
        result.freed -= 1
        result.notes[claim.uuid] = reasons.WAITS_FOR_CLOSID
        return
    nearest = None
    if world.policy.when_full is WhenFull.SHARE:
        result.sharing.add(claim.uuid)
        nearest = _nearest(world, claim, result.classes)
        if nearest is not None:
            result.members[claim.uuid] = nearest
    if bounded:
        result.notes[claim.uuid] = reasons.too_many_classes(
            world, most_others(world.capabilities, world.policy), nearest
        )
    else:
        result.notes[claim.uuid] = reasons.no_closid(world, nearest, len(result.kept))


def _nearest(world: World, claim: Claim, classes: Iterable[str]) -> str | None:
    """The class with the same cap, else the class with the next larger cap, else the one with the next smaller cap.

    Among classes with the same cap, the one with the smallest limit of bandwidth is taken. A class whose limit is
    smaller than the one asked for is never taken, and neither is a class with a cap where no cap is asked for.
    """
    limit = next(iter(claim.throttles.values()), None)
    ways = CacheRequest(ways=claim.ways or None, l2_ways=claim.l2 or None)
    wanted = throttle.with_limit(ways, world.capabilities.memory_bandwidth, limit)
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
