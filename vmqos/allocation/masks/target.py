# SPDX-License-Identifier: Apache-2.0
"""The layout that a plan leads to: every mask of the default group and of our own groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vmqos.allocation import caches
from vmqos.allocation.cache_ways import WantedMask, take, union
from vmqos.allocation.masks.packing import pack
from vmqos.allocation.masks.route import Route, find
from vmqos.allocation.model import Split
from vmqos.allocation.planner_input import PlannerInput
from vmqos.allocation.rights.admission import Admission
from vmqos.allocation.rights.claims import Claim
from vmqos.group_names import DEFAULT_GROUP, Owner, class_request
from vmqos.resctrl.bitmask import CapacityBitmask


@dataclass(frozen=True, slots=True)
class Target:
    """The layout after a plan's ``prepare``.

    :ivar masks: each group's ways by cache, by the group's name. A group that is to be removed is there, too: it has
        only ways that the default group has.
    :ivar own: where a group has its ways alone, as pairs of group and cache.
    :ivar guarded: the groups that the kernel can guard by its mode ``exclusive``.
    :ivar created: the groups that do not exist yet: first the VMs' groups, then the classes, each in order of arrival.
    :ivar retired: the groups that no VM needs.
    :ivar throttles: the limits of memory bandwidth by cache, by the name of each group that a VM needs; a cache without
        a limit has the unit's greatest value.
    :ivar routes: on some caches, the writes that come first, in this order: a group's name and its mask.
    :ivar parts: how many ways are for code and how many for data, by group and cache, where these are apart.
    """

    masks: Mapping[str, Mapping[int, int]]
    own: frozenset[tuple[str, int]]
    guarded: frozenset[str]
    created: tuple[str, ...]
    retired: tuple[str, ...]
    throttles: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    parts: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    routes: Mapping[int, Sequence[tuple[str, int]]] = field(default_factory=dict)

    def splits(self, inputs: PlannerInput, name: str, masks: Mapping[int, int]) -> dict[int, Split]:
        """The parts of these masks of a group, by cache; empty without CDP."""
        return {
            cache: split(mask, *self.parts.get((name, cache), ()))
            for cache, mask in masks.items()
            if caches.level(cache) in inputs.capabilities.split_levels
        }


def build(
    inputs: PlannerInput,
    claims: Sequence[Claim],
    admission: Admission,
    routes: Mapping[int, Route],
    before: Mapping[str, Mapping[int, int]] | None = None,
) -> Target:
    """Place the masks of all VMs and classes that were let in.

    :param routes: the packings that were found already, each with the writes that lead there, by cache.
    :param before: where the masks are to lie if they can, by group and cache; where they lie now unless given.
    """
    rank = {claim.uuid: number for number, claim in enumerate(claims)}
    group_of = {claim.uuid: claim.group for claim in claims if claim.uuid in admission.served}
    needed = (*group_of.values(), *admission.classes)
    retired = tuple(name for name in inputs.ours if name not in needed)
    masks: dict[str, dict[int, int]] = {name: {} for name in (DEFAULT_GROUP, *needed, *retired)}
    own = set()
    for cache, budget in admission.budgets.items():
        if cache in routes:
            packing = routes[cache].packing
        else:
            wanted_masks = sorted(budget.wanted_masks.values(), key=lambda wanted: rank[wanted.key])
            pool = inputs.masks[DEFAULT_GROUP].get(cache, 0)
            if before and not budget.stuck and (places := _places(wanted_masks, group_of, cache, before)) is not None:
                wanted_masks, pool = places, before.get(DEFAULT_GROUP, {}).get(cache, pool)
            packing = pack(budget.cache_ways, wanted_masks, budget.need, pool)
        exclusive = {group_of[uuid]: mask for uuid, mask in (*packing.masks.items(), *budget.stuck.items())}
        own |= {(name, cache) for name in exclusive}
        default = _default(inputs, cache, packing.pool, union(exclusive.values()))
        for name in masks:
            if name in admission.classes:
                now = (before or inputs.masks).get(name, inputs.masks.get(name, {})).get(cache, 0)
                masks[name][cache] = _class(inputs, cache, name, default, admission.classes[name], now)
            else:
                masks[name][cache] = exclusive.get(name, default)
    return Target(
        masks=masks,
        own=frozenset(own),
        guarded=frozenset(name for name in group_of.values() if _can_be_guarded(inputs, masks, own, name)),
        created=tuple(name for name in needed if name not in inputs.groups),
        retired=retired,
        throttles=_throttles(inputs, claims, admission, needed),
        parts={
            (claim.group, cache): claim.parts(cache)
            for claim in claims
            if claim.code or claim.parts_on
            for cache in inputs.cache_ways
            if caches.level(cache) == 3
            if any(claim.parts(cache))
            if claim.group in admission.classes or (claim.group, cache) in own
        },
        routes={
            cache: [(group_of.get(key, DEFAULT_GROUP), mask) for key, mask in found.writes]
            for cache, found in routes.items()
        },
    )


def _places(
    wanted_masks: Sequence[WantedMask],
    group_of: Mapping[str, str],
    cache: int,
    before: Mapping[str, Mapping[int, int]],
) -> list[WantedMask] | None:
    """The masks as if they lay where they lay before; ``None`` unless each of them did, with the length that is due."""
    found = []
    for wanted in wanted_masks:
        place = before.get(group_of[wanted.key], {}).get(cache, 0)
        if place.bit_count() != wanted.length:
            return None
        found.append(replace(wanted, held=place))
    return found


def route(inputs: PlannerInput, claims: Sequence[Claim], admission: Admission, cache: int) -> Route | None:
    """A packing that can be reached without an overlap, with the writes that lead there; ``None`` if none is found."""
    budget, rank = admission.budgets[cache], {claim.uuid: number for number, claim in enumerate(claims)}
    wanted_masks = sorted(budget.wanted_masks.values(), key=lambda wanted: rank[wanted.key])
    return find(budget.cache_ways, wanted_masks, budget.need, inputs.masks[DEFAULT_GROUP].get(cache, 0))


def _throttles(
    inputs: PlannerInput, claims: Sequence[Claim], admission: Admission, needed: Sequence[str]
) -> dict[str, dict[int, int]]:
    """Each group's limits: the promised one on caches where one of its VMs can run, no limit on the other caches."""
    resource = inputs.capabilities.memory_bandwidth
    if resource is None:
        return {}
    found = {name: dict.fromkeys(resource.cache_ids, resource.unit.unlimited) for name in needed}
    for claim in claims:
        if claim.uuid in admission.served or admission.members.get(claim.uuid) == claim.group:
            found[claim.group].update(claim.throttles)
    return found


def _default(inputs: PlannerInput, cache: int, pool: int, taken: int) -> int:
    """The default group's ways: the pool; where nothing is left for the pool, all ways that no group has alone."""
    cache_ways, now = inputs.cache_ways[cache], inputs.masks[DEFAULT_GROUP].get(cache, 0)
    if cache_ways.legal(pool):
        return pool
    guarded = inputs.ways((name for name in inputs.names[Owner.FOREIGN] if inputs.groups[name].exclusive), cache)
    free = cache_ways.every & ~taken & ~guarded
    return cache_ways.best_part(free, cache_ways.largest(free), (cache_ways.pool, now)) or now


def _class(inputs: PlannerInput, cache: int, name: str, default: int, cap: int, now: int) -> int:
    """A class's ways: as many of the default group's as its cap allows, and preferably those that it has now.

    :param cap: the class's cap on L3; 0 for none.
    :param now: what it has now, or is to have again.
    """
    if caches.level(cache) == 2:
        grants = class_request(name)
        cap = (grants.l2_ways or 0) if grants is not None else 0
    cache_ways = inputs.cache_ways[cache]
    liked = (now, ~cache_ways.company, ~cache_ways.shareable)
    return cache_ways.best_part(default, min(cap, default.bit_count()), liked) or default


def _can_be_guarded(
    inputs: PlannerInput, masks: Mapping[str, Mapping[int, int]], own: set[tuple[str, int]], name: str
) -> bool:
    """Whether the kernel would take mode ``exclusive`` for the group.

    The kernel refuses it if the group overlaps any other group or the ways of I/O, in any cache of any resource
    (``rdtgroup_mode_test_exclusive`` in the kernel's resctrl). So no group can be guarded where there are caches that
    the planner does not arrange.
    """
    if not inputs.policy.kernel_exclusive or inputs.leaves_out_l2:
        return False
    for cache, cache_ways in inputs.cache_ways.items():
        others = cache_ways.foreign | union(other[cache] for group, other in masks.items() if group != name)
        if (name, cache) not in own or masks[name][cache] & (others | cache_ways.shareable):
            return False
    return True


def split(ways: int, code: int = 0, data: int = 0) -> Split:
    """Divide a mask, where resctrl is mounted with CDP: code has the lowest ways, data has the others.

    Neither has fewer than asked for, as far as there are so many; where there are too few, they have ways in common.
    The planner places the ways of both as one mask. So what keeps masks apart keeps code apart from others' data, too,
    and where a mask lies is decided without regard to its parts.

    :param ways: the mask of both.
    :param code: how many ways are for code; 0 where both fill all of them.
    :param data: how many ways are for data.
    """
    if not code:
        return Split(CapacityBitmask(ways), CapacityBitmask(ways))
    count = ways.bit_count()
    lower = min(code, count)
    common = max(0, lower + min(data, count) - count)
    upper = ways & ~take(ways, lower - common)
    return Split(CapacityBitmask(take(ways, lower)), CapacityBitmask(upper))
