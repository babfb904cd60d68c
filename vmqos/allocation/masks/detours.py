# SPDX-License-Identifier: Apache-2.0
"""Which group makes way, and how, where each mask's new place is still another group's: the masks form a circle."""

from __future__ import annotations

from collections.abc import Iterator

from vmqos.allocation.cache_ways import union
from vmqos.allocation.masks.progress import Progress
from vmqos.group_names import DEFAULT_GROUP

Write = tuple[str, int]
"""A group, and the mask that it gets on the cache in question."""

Detour = tuple[int, list[Write]]
"""How much harm is done meanwhile, 0 being none, and the writes in their order."""


def make_way(progress: Progress) -> tuple[int, list[Write]]:
    """The writes that clear the new place of one mask at the least harm.

    :returns: the cache, and what is to be written there; nothing to write if no group can make way.
    """
    best: tuple[int, int, list[Write]] | None = None
    stuck: list[int] = []
    for name in progress.order:
        if progress.waits(name):
            continue
        for cache, place in progress.missing[name].items():
            if not progress.in_the_way(name, cache, place):
                continue
            stuck.append(cache)
            found = _clear(progress, name, cache, place)
            if found is not None and (best is None or found[0] < best[0]):
                best = (found[0], cache, found[1])
    return (best[1], best[2]) if best else (stuck[0], [])


def _clear(progress: Progress, name: str, cache: int, place: int) -> Detour | None:
    """How all groups that are in the way step aside; ``None`` if one of them can't."""
    harm, writes = 0, list[Write]()
    for other in progress.in_the_way(name, cache, place):
        asides = (
            aside
            for aside in _asides(progress, other, cache, place)
            if not any(_clash(progress, cache, new, old) for new in aside[1] for old in writes)
        )
        detour = min(asides, default=None)
        if detour is None:
            return None
        harm = max(harm, detour[0])
        writes += detour[1]
    return (harm, writes) if writes else None


def _clash(progress: Progress, cache: int, one: Write, other: Write) -> bool:
    """Whether two masks that are to be written can't be in force together.

    A VM's mask that overlaps the default group's mask is not the VM's own yet, so it may overlap other masks, too.
    """
    default = progress.masks[DEFAULT_GROUP].get(cache, 0)
    own = any((name, cache) in progress.target.own and not mask & default for name, mask in (one, other))
    return one[0] == other[0] or (own and bool(one[1] & other[1]))


def _asides(progress: Progress, name: str, cache: int, place: int) -> Iterator[Detour]:
    """The detours by which the group could leave the ways that another group needs."""
    if progress.is_in_force(name, cache):
        yield from _asides_of_owner(progress, name, cache, place)
        return
    yield from _asides_of_sharer(progress, name, cache, place)
    if (name, cache) in progress.target.own:
        yield from _asides_with_default(progress, name, cache, place)


def _asides_with_default(progress: Progress, name: str, cache: int, place: int) -> Iterator[Detour]:
    """A VM that has no ways of its own yet waits within the default group's ways, where many VMs can wait together.

    If possible, its mask is as long as its grant, and is not the default group's mask: if the agent is killed then, the
    next one sees from this mask what the VM had (:mod:`vmqos.allocation.rights.earlier`).
    """
    cache_ways, default = progress.inputs.cache_ways[cache], progress.masks[DEFAULT_GROUP].get(cache, 0)
    ways = default & ~place & ~_owned(progress, cache)
    for size in range(min(progress.target.masks[name][cache].bit_count(), cache_ways.largest(ways)), 0, -1):
        if (part := cache_ways.best_part(ways, size, ())) and (part != default or size == cache_ways.fewest):
            yield 2, [(name, part)]
            return


def _asides_of_sharer(progress: Progress, name: str, cache: int, place: int) -> Iterator[Detour]:
    """A group that shares makes itself small, or goes elsewhere."""
    now = progress.masks[name].get(cache, 0)
    if part := _enough(progress, name, cache, now & ~place):
        yield 0, [(name, part)]
    if part := _enough(progress, name, cache, _elsewhere(progress, name, cache, place)):
        yield 1, [(name, part)]


def _asides_of_owner(progress: Progress, name: str, cache: int, place: int) -> Iterator[Detour]:
    """A VM's mask goes to a free place, or to one that the default group can spare.

    The mask becomes smaller only to leave ways that are not to be promised. For no other VM's promise does it: if the
    agent were killed then, the VM would have fewer ways than it was granted (rule 4).
    """
    cache_ways, now, goal = (
        progress.inputs.cache_ways[cache],
        progress.masks[name].get(cache, 0),
        progress.target.masks[name][cache],
    )
    size = progress.least(name, cache)
    others = [group for group in progress.masks if group != name]
    allowed = cache_ways.exclusive & ~place & ~(cache_ways.shareable if name in progress.guarded else 0)
    free = allowed & ~progress.ways(others, cache)
    wanted = union(progress.missing[group].get(cache, 0) for group in progress.order if group != name)
    for harm, ways in ((1, free & ~wanted), (2, free)):
        if mask := cache_ways.best_part(ways, size, (goal,)):
            yield harm, [(name, mask)]
    for mask in cache_ways.parts(allowed & ~_owned(progress, cache, name), size):
        sharing = [group for group in others if progress.masks[group].get(cache, 0) & mask]
        left = [min(_asides_of_sharer(progress, group, cache, mask | place), default=None) for group in sharing]
        spared = [detour for detour in left if detour is not None]
        if len(spared) == len(left):
            yield (
                3 + max((harm for harm, _ in spared), default=0),
                [*(write for _, writes in spared for write in writes), (name, mask)],
            )
    for harm, ways in ((5, now & ~place & goal), (6, now & ~place)):
        length = cache_ways.largest(ways) if now & ~cache_ways.exclusive else size
        if mask := cache_ways.best_part(ways, length, (goal,)):
            yield harm, [(name, mask)]


def _enough(progress: Progress, name: str, cache: int, ways: int) -> int:
    """The largest mask within the ways, for a group that shares; 0 if it is smaller than the group needs.

    A VM that is to have ways alone gets no more than these: a mask that leaves the default group no place would be
    taken for no grant if the agent were killed then (:mod:`vmqos.allocation.rights.earlier`).
    """
    cache_ways, goal = progress.inputs.cache_ways[cache], progress.target.masks[name][cache]
    if (length := cache_ways.largest(ways)) < progress.least(name, cache):
        return 0
    if (name, cache) in progress.target.own:
        length = min(length, goal.bit_count())
    return cache_ways.best_part(ways, length, (goal, progress.masks[name].get(cache, 0)))


def _elsewhere(progress: Progress, name: str, cache: int, place: int) -> int:
    """The ways that a group that shares could have, without the ways that another group needs."""
    ways = progress.inputs.cache_ways[cache].pool | progress.masks[name].get(cache, 0)
    return ways & ~_owned(progress, cache) & ~place


def _owned(progress: Progress, cache: int, but: str = "") -> int:
    """The ways that any VM has alone now."""
    owners = (group for group in progress.masks if group != but and progress.is_in_force(group, cache))
    return progress.ways(owners, cache)
