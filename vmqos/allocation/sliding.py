# SPDX-License-Identifier: Apache-2.0
"""Where masks lie if none may pass another: more of them may have to move, but the way there is always clear.

Say mask *i* lies below mask *j* and goes on doing so. If *j* is to have a way that *i* has now, then *i* goes down, and
down there nobody waits for *j*. So some mask can always be written next, and none has to step aside. Where no foreign
group is in between, masks can be pushed together like that for whatever fits in number.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from vmqos.allocation.line import Line, Need, lowest, run
from vmqos.allocation.packing import Packing, Piece, is_enough, kept_starts, pool_cost

_POOL = -1
_MOVE = 1 << 32
"""What a moved mask costs: more than any pool is worth."""

Found = tuple[int, tuple[tuple[int, int], ...]]
"""A cost, and the places of pieces by their index (``_POOL`` for the pool)."""


def slide(line: Line, pieces: Sequence[Piece], need: Need, pool_now: int) -> Packing | None:
    """The packing with the fewest moved masks in which those that have ways, and the pool, keep their order.

    :param pieces: masks that lie nowhere yet may come anywhere; of equals the first lies lowest.
    :param pool_now: the ways that the pool has now.
    :returns: ``None`` if there is none.
    """
    where = {index: lowest(piece.held) for index, piece in enumerate(pieces) if piece.held}
    where[_POOL] = lowest(pool_now) if pool_now else line.width
    row = sorted(where, key=lambda index: (where[index], index))
    starts = {index: kept_starts(line, pieces[index]) for index in row if index != _POOL}

    @functools.cache
    def best(way: int, placed: int, loose: tuple[int, ...]) -> Found | None:
        if way >= line.width:
            left = row[placed:]
            # A pool that needs no way has a place behind the last one, too.
            done = not left or (left == [_POOL] and not need.width)
            return (0, ()) if done and not loose else None
        options = [best(way + 1, placed, loose)]
        if placed < len(row):
            options += pools(way, placed, loose) if row[placed] == _POOL else [piece(way, row[placed], placed, loose)]
        first = {pieces[index].length: index for index in reversed(loose)}
        options += [piece(way, index, placed, loose) for index in first.values()]
        return min((option for option in options if option is not None), default=None)

    def piece(way: int, index: int, placed: int, loose: tuple[int, ...]) -> Found | None:
        place = run(way, pieces[index].length)
        if place & ~line.exclusive:
            return None
        if index in loose:
            rest = best(way + pieces[index].length, placed, tuple(other for other in loose if other != index))
        else:
            rest = best(way + pieces[index].length, placed + 1, loose)
        cost = 0 if index in loose or way in starts[index] else _MOVE
        cost += (place & line.shareable).bit_count() * _MOVE // 64
        return rest and (cost + rest[0], ((index, place), *rest[1]))

    def pools(way: int, placed: int, loose: tuple[int, ...]) -> list[Found | None]:
        found: list[Found | None] = [] if need.width else [best(way, placed + 1, loose)]
        for length in range(lowest(~(line.pool >> way)), 0, -1):
            place = run(way, length)
            if not is_enough(line, place, need):
                break
            rest = best(way + length, placed + 1, loose)
            found.append(rest and (pool_cost(line, place, pool_now) + rest[0], ((_POOL, place), *rest[1])))
        return found

    result = best(0, 0, tuple(index for index, piece in enumerate(pieces) if not piece.held))
    if result is None:
        return None
    places = dict(result[1])
    return Packing(places.pop(_POOL, 0), {pieces[index].key: place for index, place in places.items()})
