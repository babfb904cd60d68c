# SPDX-License-Identifier: Apache-2.0
"""Which group makes way, and how, where each mask's new place is still another group's: the masks form a circle."""

from __future__ import annotations

from collections.abc import Iterator

from vmqos.allocation.board import Board
from vmqos.allocation.line import union
from vmqos.group_names import DEFAULT_GROUP

Write = tuple[str, int]
"""A group, and the mask that it gets on the cache in question."""

Detour = tuple[int, list[Write]]
"""How much harm is done meanwhile, 0 being none, and the writes in their order."""


def make_way(board: Board) -> tuple[int, list[Write]]:
    """The writes that clear the new place of one mask at the least harm.

    :returns: the cache, and what is to be written there; nothing to write if no group can make way.
    """
    best: tuple[int, int, list[Write]] | None = None
    stuck: list[int] = []
    for name in board.order:
        for cache, place in board.missing(name).items():
            if board.waits(name) or board.is_free(name, cache, place):
                continue
            stuck.append(cache)
            found = _clear(board, name, cache, place)
            if found is not None and (best is None or found[0] < best[0]):
                best = (found[0], cache, found[1])
    return (best[1], best[2]) if best else (stuck[0], [])


def _clear(board: Board, name: str, cache: int, place: int) -> Detour | None:
    """How all groups that are in the way step aside; ``None`` if one of them can't."""
    harm, writes = 0, list[Write]()
    for other in board.in_the_way(name, cache, place):
        asides = (
            aside
            for aside in _asides(board, other, cache, place)
            if not any(_clash(board, cache, new, old) for new in aside[1] for old in writes)
        )
        detour = min(asides, default=None)
        if detour is None:
            return None
        harm = max(harm, detour[0])
        writes += detour[1]
    return (harm, writes) if writes else None


def _clash(board: Board, cache: int, one: Write, other: Write) -> bool:
    """Whether two masks that are to be written can't be in force together.

    A VM's mask that overlaps the default group's mask is not the VM's own yet, so it may overlap other masks, too.
    """
    default = board.masks[DEFAULT_GROUP].get(cache, 0)
    own = any(board.is_own(name, cache) and not mask & default for name, mask in (one, other))
    return one[0] == other[0] or (own and bool(one[1] & other[1]))


def _asides(board: Board, name: str, cache: int, place: int) -> Iterator[Detour]:
    """The detours by which the group could leave the ways that another group needs."""
    if board.is_in_force(name, cache):
        yield from _asides_of_owner(board, name, cache, place)
        return
    yield from _asides_of_sharer(board, name, cache, place)
    if board.is_own(name, cache):
        yield from _asides_with_default(board, name, cache, place)


def _asides_with_default(board: Board, name: str, cache: int, place: int) -> Iterator[Detour]:
    """A VM that has no ways of its own yet waits within the default group's ways, where many VMs can wait together.

    If possible, its mask is as long as its grant, and is not the default group's mask: if the agent is killed then, the
    next one sees from this mask what the VM had (:mod:`vmqos.allocation.earlier`).
    """
    line, default = board.world.lines[cache], board.masks[DEFAULT_GROUP].get(cache, 0)
    ways = default & ~place & ~_owned(board, cache)
    for size in range(min(board.target.masks[name][cache].bit_count(), line.largest(ways)), 0, -1):
        if (part := line.best_part(ways, size, ())) and (part != default or size == line.fewest):
            yield 2, [(name, part)]
            return


def _asides_of_sharer(board: Board, name: str, cache: int, place: int) -> Iterator[Detour]:
    """A group that shares makes itself small, or goes elsewhere."""
    now = board.masks[name].get(cache, 0)
    if part := _enough(board, name, cache, now & ~place):
        yield 0, [(name, part)]
    if part := _enough(board, name, cache, _elsewhere(board, name, cache, place)):
        yield 1, [(name, part)]


def _asides_of_owner(board: Board, name: str, cache: int, place: int) -> Iterator[Detour]:
    """A VM's mask goes to a free place, or to one that the default group can spare.

    The mask becomes smaller only to leave ways that are not to be promised. For no other VM's promise does it: if the
    agent were killed then, the VM would have fewer ways than it was granted (rule 4).
    """
    line, now, goal = board.world.lines[cache], board.masks[name].get(cache, 0), board.target.masks[name][cache]
    size = board.least(name, cache)
    others = [group for group in board.masks if group != name]
    allowed = line.exclusive & ~place & ~(line.shareable if name in board.guarded else 0)
    free = allowed & ~board.ways(others, cache)
    wanted = union(board.missing(group).get(cache, 0) for group in board.order if group != name)
    for harm, ways in ((1, free & ~wanted), (2, free)):
        if mask := line.best_part(ways, size, (goal,)):
            yield harm, [(name, mask)]
    for mask in line.parts(allowed & ~_owned(board, cache, name), size):
        sharing = [group for group in others if board.masks[group].get(cache, 0) & mask]
        left = [min(_asides_of_sharer(board, group, cache, mask | place), default=None) for group in sharing]
        spared = [detour for detour in left if detour is not None]
        if len(spared) == len(left):
            yield (
                3 + max((harm for harm, _ in spared), default=0),
                [*(write for _, writes in spared for write in writes), (name, mask)],
            )
    for harm, ways in ((5, now & ~place & goal), (6, now & ~place)):
        length = line.largest(ways) if now & ~line.exclusive else size
        if mask := line.best_part(ways, length, (goal,)):
            yield harm, [(name, mask)]


def _enough(board: Board, name: str, cache: int, ways: int) -> int:
    """The largest mask within the ways, for a group that shares; 0 if it is smaller than the group needs."""
    line = board.world.lines[cache]
    if (length := line.largest(ways)) < board.least(name, cache):
        return 0
    return line.best_part(ways, length, (board.target.masks[name][cache], board.masks[name].get(cache, 0)))


def _elsewhere(board: Board, name: str, cache: int, place: int) -> int:
    """The ways that a group that shares could have, without the ways that another group needs."""
    ways = board.world.lines[cache].pool | board.masks[name].get(cache, 0)
    return ways & ~_owned(board, cache) & ~place


def _owned(board: Board, cache: int, but: str = "") -> int:
    """The ways that any VM has alone now."""
    owners = (group for group in board.masks if group != but and board.is_in_force(group, cache))
    return board.ways(owners, cache)
