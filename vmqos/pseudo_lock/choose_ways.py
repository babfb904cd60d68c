# SPDX-License-Identifier: Apache-2.0
"""Which ways of a cache can be pseudo-locked, and who makes way for that: the default group and who shares with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vmqos.allocation.cache_ways import CacheWays, longest_run, union
from vmqos.group_names import DEFAULT_GROUP
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource


@dataclass(frozen=True, slots=True)
class Holders:
    """Who has which ways of one cache now.

    :ivar default: the default group.
    :ivar ours: our own groups by name. What does not lie within the default group's ways is a VM's for itself.
    :ivar others: everybody else's: foreign groups, regions that are locked, ways that are reserved.
    """

    default: CapacityBitmask
    ours: Mapping[str, CapacityBitmask]
    others: CapacityBitmask = field(default_factory=CapacityBitmask)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to lock.

    :ivar locked: the ways of the region.
    :ivar masks: what the groups have then that have to make way, by name, the default group last.
    """

    locked: CapacityBitmask
    masks: Mapping[str, CapacityBitmask]


def choose(cache: CacheResource, holders: Holders, ways: int, floor: int) -> Choice | None:
    """The best neighbouring ways to lock; ``None`` where there are none.

    The kernel locks no way that another group has or that devices fill (``rdtgroup_cbm_overlaps``). Of what is left,
    the choice leaves the longest run for VMs to come, then the most for the default group. What a VM has for itself
    stays as it is, and so does what is others'. Our groups that share with the default group (classes; VMs that do not
    run on this cache) stay within its mask and keep as many ways as they have.

    :param ways: how many, 1 or more.
    :param floor: how many ways the default group keeps at least, those that it has together with others not counted.
    """
    cache_ways = _cache_ways(cache, sparse=cache.sparse_masks)
    apart = union(mask.bits for mask in holders.ours.values() if mask - holders.default)
    free = cache.cbm_mask.bits & ~(apart | holders.others.bits | cache_ways.shareable)
    best: tuple[int, int, int] | None = None
    found: Choice | None = None
    for candidate in _cache_ways(cache, sparse=False).parts(free, max(ways, cache_ways.fewest)):
        masks = _make_way(cache_ways, holders, candidate, floor)
        if masks is None:
            continue
        for_vms = longest_run(cache_ways.every & ~holders.others.bits & ~candidate)
        rank = (for_vms, masks.get(DEFAULT_GROUP, holders.default.bits).bit_count(), -candidate)
        if best is None or rank > best:
            best = rank
            found = Choice(CapacityBitmask(candidate), {name: CapacityBitmask(mask) for name, mask in masks.items()})
    return found


def most(cache: CacheResource, holders: Holders, floor: int) -> int:
    """How many ways could be locked at most; 0 if none."""
    counts = range(cache.way_count, 0, -1)
    return next((ways for ways in counts if choose(cache, holders, ways, floor) is not None), 0)


def _cache_ways(cache: CacheResource, sparse: bool) -> CacheWays:
    return CacheWays(
        every=cache.cbm_mask.bits,
        pool=0,
        company=0,
        exclusive=0,
        shareable=cache.shareable_bits.bits & cache.cbm_mask.bits,
        fewest=max(1, cache.min_cbm_bits),
        sparse=sparse,
    )


def _make_way(cache_ways: CacheWays, holders: Holders, taken: int, floor: int) -> dict[str, int] | None:
    """The masks that change so that no group has these ways; ``None`` where a group would have too few."""
    before = holders.default.bits
    if not before & taken:
        return {}
    left = before & ~taken
    after = cache_ways.best_part(left, cache_ways.largest(left), (~holders.others.bits, ~cache_ways.shareable))
    if (after & ~holders.others.bits).bit_count() < max(floor, cache_ways.fewest):
        return None
    masks = {}
    for name, mask in holders.ours.items():
        if mask - holders.default or not mask.bits & ~after:
            continue
        size = after.bit_count() if mask.bits == before else mask.count
        part = cache_ways.best_part(after, size, (mask.bits, ~cache_ways.shareable))
        if not part:
            return None
        masks[name] = part
    return {**masks, DEFAULT_GROUP: after}
