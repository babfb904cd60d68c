# SPDX-License-Identifier: Apache-2.0
"""Who makes way, and how, where every mask's new place is still somebody else's: masks going round in a circle."""

from __future__ import annotations

from collections.abc import Iterator

from vmqos.allocation.board import Board
from vmqos.allocation.line import union

Aside = tuple[int, int]
"""How bad it is to step aside like that, and the mask to have meanwhile."""


def make_way(board: Board) -> tuple[int, list[tuple[str, int]]]:
    """The masks that clear the new place of one mask at the least harm.

    :returns: the cache, and the groups with the masks to be written there in this order; none if nobody can make way.
    """
    best: tuple[int, int, list[tuple[str, int]]] | None = None
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


def _clear(board: Board, name: str, cache: int, place: int) -> tuple[int, list[tuple[str, int]]] | None:
    """How everyone who is in the way steps aside; ``None`` if somebody can't."""
    harm = 0
    asides: list[tuple[str, int]] = []
    for other in board.in_the_way(name, cache, place):
        aside = min(_asides(board, other, cache, place), default=None)
        if aside is None or any(aside[1] & mask for group, mask in asides if _clash(board, other, group, cache)):
            return None
        harm = max(harm, aside[0])
        asides.append((other, aside[1]))
    return (harm, asides) if asides else None


def _clash(board: Board, one: str, other: str, cache: int) -> bool:
    return board.is_own(one, cache) or board.is_own(other, cache)


def _asides(board: Board, name: str, cache: int, place: int) -> Iterator[Aside]:
    """What the group could have instead of the ways that are wanted from it."""
    line, now = board.world.lines[cache], board.masks[name].get(cache, 0)
    goal = board.target.masks[name][cache]
    rest = now & ~place
    if not board.is_in_force(name, cache):
        if line.largest(rest) >= board.least(name, cache):
            yield 0, line.best_part(rest, line.largest(rest), (goal,))
        others = union(masks.get(cache, 0) for group, masks in board.masks.items() if board.is_in_force(group, cache))
        elsewhere = (line.pool | now) & ~others & ~place
        if line.largest(elsewhere) >= board.least(name, cache):
            yield 3, line.best_part(elsewhere, line.largest(elsewhere), (goal, now))
        return
    size = now.bit_count()
    taken = union(masks.get(cache, 0) for group, masks in board.masks.items() if group != name)
    wanted = union(board.missing(group).get(cache, 0) for group in board.order if group != name)
    free = line.exclusive & ~taken & ~place
    if name in board.guarded:
        free &= ~line.shareable
    for harm, ways in ((1, free & ~wanted), (2, free)):
        if mask := line.best_part(ways, size, (goal,)):
            yield harm, mask
    for harm, ways in ((4, rest & goal), (5, rest)):
        if length := line.largest(ways):
            yield harm, line.best_part(ways, length, (goal,))
