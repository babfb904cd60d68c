# SPDX-License-Identifier: Apache-2.0
"""The layout that a plan leads to: every mask of the default group and of our own groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from vmqos.allocation.admission import Admission
from vmqos.allocation.claims import Claim
from vmqos.allocation.line import union
from vmqos.allocation.model import DEFAULT_GROUP, Owner
from vmqos.allocation.packing import Packing, Piece, pack
from vmqos.allocation.room import Room
from vmqos.allocation.sliding import slide
from vmqos.allocation.world import World


@dataclass(frozen=True, slots=True)
class Target:
    """The end of a plan's ``prepare``.

    :ivar masks: each group's ways by cache, by its name; those of groups that are to be removed, too: nothing but what
        the default group has.
    :ivar own: where a group's ways are nobody else's, as pairs of group and cache.
    :ivar guarded: the groups that the kernel can guard by its mode ``exclusive``.
    :ivar created: the groups that do not exist yet: the VMs' first, each kind in order of arrival.
    :ivar retired: the groups that no VM needs.
    """

    masks: Mapping[str, Mapping[int, int]]
    own: frozenset[tuple[str, int]]
    guarded: frozenset[str]
    created: tuple[str, ...]
    retired: tuple[str, ...]


def build(world: World, claims: Sequence[Claim], admission: Admission, steady: Collection[int] = ()) -> Target:
    """Place everything that was let in.

    :param steady: caches on which no mask is to pass another, if that can be.
    """
    rank = {claim.uuid: number for number, claim in enumerate(claims)}
    group_of = {uuid: claim.group for uuid, claim in admission.served.items()}
    needed = (*sorted(group_of.values(), key=lambda name: rank[_uuid(group_of, name)]), *admission.classes)
    retired = tuple(name for name in world.named(Owner.VM, Owner.CLASS) if name not in needed)
    masks: dict[str, dict[int, int]] = {name: {} for name in (DEFAULT_GROUP, *needed, *retired)}
    own = set()
    for cache, room in admission.rooms.items():
        pieces = sorted(room.pieces.values(), key=lambda piece: rank[piece.key])
        packing = _pack(world, cache, room, pieces, cache in steady)
        exclusive = {group_of[uuid]: mask for uuid, mask in (*packing.masks.items(), *room.stuck.items())}
        default = _default(world, cache, packing.pool, union(exclusive.values()))
        for name in masks:
            if name in exclusive:
                own.add((name, cache))
            if name in admission.classes:
                masks[name][cache] = _class(world, cache, name, default, admission.classes[name])
            else:
                masks[name][cache] = exclusive.get(name, default)
    return Target(
        masks=masks,
        own=frozenset(own),
        guarded=frozenset(name for name in group_of.values() if _can_be_guarded(world, masks, own, name)),
        created=tuple(name for name in needed if name not in world.groups),
        retired=retired,
    )


def _pack(world: World, cache: int, room: Room, pieces: Sequence[Piece], steady: bool) -> Packing:
    default = world.masks[DEFAULT_GROUP].get(cache, 0)
    if steady and not room.line.sparse:
        found = slide(room.line, pieces, room.need, default)
        if found is not None:
            return found
    return pack(room.line, pieces, room.need, default)


def _uuid(group_of: Mapping[str, str], name: str) -> str:
    return next(uuid for uuid, group in group_of.items() if group == name)


def _default(world: World, cache: int, pool: int, taken: int) -> int:
    """The default group's ways: the pool; where nothing is left for it, whatever is nobody's own."""
    line, now = world.lines[cache], world.masks[DEFAULT_GROUP].get(cache, 0)
    if line.legal(pool):
        return pool
    guarded = world.ways((name for name in world.named(Owner.FOREIGN) if world.groups[name].exclusive), cache)
    free = line.every & ~taken & ~guarded
    return line.best_part(free, line.largest(free), (line.pool, now)) or now


def _class(world: World, cache: int, name: str, default: int, cap: int) -> int:
    """A class's ways: as many of the default group's as its cap allows, and rather those that it has."""
    line, now = world.lines[cache], world.masks.get(name, {}).get(cache, 0)
    return line.best_part(default, min(cap, default.bit_count()), (now, ~line.company, ~line.shareable)) or default


def _can_be_guarded(world: World, masks: Mapping[str, Mapping[int, int]], own: set[tuple[str, int]], name: str) -> bool:
    """Whether the kernel would take mode ``exclusive`` for the group.

    It refuses groups that overlap any other group or the ways of I/O, in any cache of any resource
    (``rdtgroup_mode_test_exclusive`` in the kernel's resctrl). In an L2 every group has every way here.
    """
    if not world.policy.kernel_exclusive or set(world.capabilities.caches) != {"L3"}:
        return False
    for cache, line in world.lines.items():
        others = world.foreign(cache) | union(other[cache] for group, other in masks.items() if group != name)
        if (name, cache) not in own or masks[name][cache] & (others | line.shareable):
            return False
    return True
