# SPDX-License-Identifier: Apache-2.0
"""How the masks of one cache come to a packing without an overlap on the way, found by searching all ways there.

It is asked where the packing with the fewest moves can't be reached (:mod:`vmqos.allocation.masks.detours`). That is
rare.

Between two obstacles (the pool, a foreign group, ways that are not to be promised) lies a *gap*, and in it a row of
masks. Masks of a row can be pushed together and apart without passing each other. So where exactly they lie does not
matter, only their order does: two states with the same order in each gap are one to the search. Two kinds of moves lead
on from a state: a mask goes into a gap that has room for it, or the pool goes elsewhere.

No mask is ever smaller on the way than now and at the end, and neither is the pool: an agent that is killed on the way
leaves everybody what it was granted (rule 4). Masks grow, and new ones come, when all others have their places: if
there is any way, there is one on which they wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmqos.allocation.cache_ways import CacheWays, Need, WantedMask, lowest, run, runs, union
from vmqos.allocation.masks.packing import Packing, is_enough, pool_cost

POOL = ""
"""Stands for the pool where masks are called by their keys."""
MOST_STATES = 1500
"""After so many states the search gives up."""

Write = tuple[str, int]
"""A mask's key, or :data:`POOL`, and its mask."""

Kind = tuple[int, int]
"""How long a mask is on the way and in the end. Two of a kind can stand for one another."""


@dataclass(frozen=True, slots=True)
class Route:
    """The way to a packing.

    :ivar packing: where everything lies in the end.
    :ivar writes: what is written on the way there, in this order. What is written last lies within the packing's masks,
        the pool excepted, which has to be written once more.
    """

    packing: Packing
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class _State:
    """Where things lie.

    :ivar pool: the pool's ways.
    :ivar masks: the ways of the masks by their keys.
    """

    pool: int
    masks: Mapping[str, int]

    def after(self, writes: Sequence[Write]) -> _State:
        changes = dict(writes)
        return _State(changes.pop(POOL, self.pool), {**self.masks, **changes})


@dataclass(frozen=True, slots=True)
class _Gap:
    """A run of ways without an obstacle.

    :ivar start: its lowest way.
    :ivar end: one more than its highest way.
    :ivar row: the keys of the masks in it, from the lowest way up.
    :ivar free: how many of its ways no group has.
    """

    start: int
    end: int
    row: tuple[str, ...]
    free: int


def find(cache_ways: CacheWays, wanted_masks: Sequence[WantedMask], need: Need, pool_now: int) -> Route | None:
    """A way to any packing in which the masks have their lengths; of all ways one with the fewest moves.

    :param cache_ways: masks may not have gaps here.
    :param wanted_masks: one that overlaps the pool, or an earlier one, has nothing that it could keep.
    :param pool_now: the ways that the pool has now.
    :returns: ``None`` if there is none, or none was found among :data:`MOST_STATES`.
    """
    if cache_ways.sparse or not need.width or not cache_ways.legal(pool_now):
        return None
    here, taken = dict[str, WantedMask](), pool_now
    for wanted in wanted_masks:
        if wanted.held and not wanted.held & taken:
            here[wanted.key] = wanted
            taken |= wanted.held
    return _Search(
        cache_ways, here, [wanted for wanted in wanted_masks if wanted.key not in here], need, pool_now
    ).find()


class _Search:
    """Breadth first over the states of one cache.

    :param here: the masks that lie somewhere, by their keys.
    :param new: those that lie nowhere yet.
    """

    def __init__(
        self,
        cache_ways: CacheWays,
        here: Mapping[str, WantedMask],
        new: Sequence[WantedMask],
        need: Need,
        pool_now: int,
    ) -> None:
        self._cache_ways = cache_ways
        self._here = here
        self._new = sorted(new, key=lambda wanted: -wanted.length)
        self._need = need
        self._pool_now = pool_now
        self._pools = self._look_for_pools()
        self._kinds: dict[str, Kind] = {
            key: (min(wanted.length, wanted.held.bit_count()), wanted.length) for key, wanted in here.items()
        }

    def find(self) -> Route | None:
        # A mask that is too long becomes shorter before anything else.
        first = [
            (key, self._cache_ways.best_part(wanted.held, self._kinds[key][0], (self._cache_ways.exclusive,)))
            for key, wanted in self._here.items()
            if self._kinds[key][0] < wanted.held.bit_count()
        ]
        now = _State(self._pool_now, {key: wanted.held for key, wanted in self._here.items()})
        seen = {self._signature(now.after(first))}
        waiting = deque([(now.after(first), tuple(first))])
        while waiting:
            state, writes = waiting.popleft()
            gaps = self._gaps(state)
            if (into := self._into(state, gaps)) is not None:
                return self._end(state, gaps, into, writes)
            for more in self._moves(state, gaps):
                after = state.after(more)
                signature = self._signature(after)
                if signature not in seen and len(seen) < MOST_STATES:
                    seen.add(signature)
                    waiting.append((after, writes + more))
        return None

    def _look_for_pools(self) -> list[int]:
        """The places that the pool can have on the way: as small as may be, but no smaller than now."""
        cache_ways, need, now = self._cache_ways, self._need, self._pool_now
        sizes = {max(cache_ways.fewest, need.width), max(cache_ways.fewest, min(need.width, now.bit_count()))}
        clean = min(need.clean, (now & ~cache_ways.company).bit_count())
        places = (
            run(first, size)
            for start, length in runs(cache_ways.pool)
            for size in sizes
            for first in range(start, start + length - size + 1)
        )
        return [place for place in places if (place & ~cache_ways.company).bit_count() >= clean]

    def _is_astray(self, mask: int) -> bool:
        """Whether a mask has ways that are not to be promised, which it must leave."""
        return bool(mask & ~self._cache_ways.exclusive)

    def _gaps(self, state: _State) -> list[_Gap]:
        obstacles = state.pool | union(mask for mask in state.masks.values() if self._is_astray(mask))
        found = []
        for start, length in runs(self._cache_ways.exclusive & ~obstacles):
            inside = run(start, length)
            row = sorted((mask, key) for key, mask in state.masks.items() if mask & inside)
            used = sum(mask.bit_count() for mask, _ in row)
            found.append(_Gap(start, start + length, tuple(key for _, key in row), length - used))
        return found

    def _signature(self, state: _State) -> tuple[object, ...]:
        """What the state has in common with all states into which it can be pushed."""
        astray = sorted((mask, self._kinds[key]) for key, mask in state.masks.items() if self._is_astray(mask))
        rows = tuple((gap.start, *(self._kinds[key] for key in gap.row)) for gap in self._gaps(state))
        return (state.pool, tuple(astray), rows)

    def _into(self, state: _State, gaps: Sequence[_Gap]) -> tuple[int, ...] | None:
        """Into which gaps the new masks go if this is the end; ``None`` if it is not."""
        if state.pool & ~self._cache_ways.pool or not is_enough(self._cache_ways, state.pool, self._need):
            return None
        if any(map(self._is_astray, state.masks.values())):
            return None
        left = [gap.end - gap.start - sum(self._kinds[key][1] for key in gap.row) for gap in gaps]
        return _share_out(left, [wanted.length for wanted in self._new]) if min(left, default=0) >= 0 else None

    def _moves(self, state: _State, gaps: Sequence[_Gap]) -> Iterator[tuple[Write, ...]]:
        """What can be written next, pushes included."""
        for key, mask in state.masks.items():
            for gap in gaps:
                if gap.free >= mask.bit_count():
                    yield from self._jumps(state, gap, key)
        astray = union(mask for mask in state.masks.values() if self._is_astray(mask))
        for place in self._pools:
            if place != state.pool and not place & astray:
                yield from self._pool_moves(state, gaps, place)

    def _jumps(self, state: _State, gap: _Gap, key: str) -> Iterator[tuple[Write, ...]]:
        """A mask goes into a gap that has room for it, to each place in its row."""
        size = state.masks[key].bit_count()
        for before in range(len(gap.row) + 1):
            if key in gap.row[max(0, before - 1) : before + 1]:
                continue
            sizes = [state.masks[other].bit_count() for other in gap.row]
            lowest_hole = gap.start + sum(sizes[:before])
            highest_hole = gap.end - sum(sizes[before:]) - size
            now = state.masks[gap.row[before - 1]].bit_length() if before else gap.start
            hole = min(max(now, lowest_hole), highest_hole)
            yield (*_clear(state, gap, before, hole, hole + size), (key, run(hole, size)))

    def _pool_moves(self, state: _State, gaps: Sequence[_Gap], place: int) -> Iterator[tuple[Write, ...]]:
        """The pool goes elsewhere; those who are there are pushed to either side, in each way that can be."""
        options: list[tuple[Write, ...]] = [()]
        for gap in gaps:
            inside = run(gap.start, gap.end - gap.start) & place
            if not inside:
                continue
            low, high = lowest(inside), inside.bit_length()
            sizes = [state.masks[key].bit_count() for key in gap.row]
            splits = [
                _clear(state, gap, count, low, high)
                for count in range(len(sizes) + 1)
                if sum(sizes[:count]) <= low - gap.start and sum(sizes[count:]) <= gap.end - high
            ]
            options = [option + split for option in options for split in splits]
        for option in options:
            yield (*option, (POOL, place))

    def _end(self, state: _State, gaps: Sequence[_Gap], into: Sequence[int], writes: tuple[Write, ...]) -> Route:
        """Push every row to where its masks can grow, and new ones find a place in it, all of them side by side."""
        masks: dict[str, int] = {}
        for number, gap in enumerate(gaps):
            come = [wanted for wanted, chosen in zip(self._new, into, strict=True) if chosen == number]
            width = sum(wanted.length for wanted in come)
            ways = (self._spread(state, gap, width, slot) for slot in range(len(gap.row), -1, -1))
            places, first = min(ways, key=lambda way: len(_push(state, gap.row, way[0])))
            masks |= {key: run(places[key], self._kinds[key][1]) for key in gap.row}
            writes += _push(state, gap.row, places)
            for wanted in come:
                masks[wanted.key] = run(first, wanted.length)
                first += wanted.length
        free = runs(self._cache_ways.pool & ~union(masks.values()))
        pools = [place for place in (run(*found) for found in free) if is_enough(self._cache_ways, place, self._need)]
        best = min(pools, key=lambda place: pool_cost(self._cache_ways, place, self._pool_now))
        return Route(Packing(best, masks), writes)

    def _spread(self, state: _State, gap: _Gap, width: int, slot: int) -> tuple[dict[str, int], int]:
        """Where the masks of a row lie in the end, and where new ones begin.

        :param width: how many ways new ones have together.
        :param slot: how many of the row lie below them.
        """
        limit, latest = gap.end, dict[str, int]()
        for number in range(len(gap.row) - 1, -1, -1):
            if number == slot - 1:
                limit -= width
            limit = latest[gap.row[number]] = limit - self._kinds[gap.row[number]][1]
        way, first, places = gap.start, gap.start, dict[str, int]()
        for number, key in enumerate(gap.row):
            if number == slot:
                first, way = way, way + width
            places[key] = max(way, min(lowest(state.masks[key]), latest[key]))
            way = places[key] + self._kinds[key][1]
        return places, way if slot == len(gap.row) else first


def _clear(state: _State, gap: _Gap, below: int, low: int, high: int) -> tuple[Write, ...]:
    """Push every mask that is in the way out of the ways from ``low`` to below ``high``.

    :param below: how many of the row are to lie below them; the others lie above them.
    """
    places = {}
    for key in reversed(gap.row[:below]):
        low = places[key] = min(lowest(state.masks[key]), low - state.masks[key].bit_count())
    for key in gap.row[below:]:
        places[key] = max(lowest(state.masks[key]), high)
        high = places[key] + state.masks[key].bit_count()
    return _push(state, gap.row, places)


def _push(state: _State, row: Sequence[str], places: Mapping[str, int]) -> tuple[Write, ...]:
    """Put the masks of a row to their places in the same order: first those that go down, then the others."""
    down = [key for key in row if places[key] < lowest(state.masks[key])]
    up = [key for key in reversed(row) if places[key] > lowest(state.masks[key])]
    return tuple((key, run(places[key], state.masks[key].bit_count())) for key in (*down, *up))


def _share_out(left: Sequence[int], lengths: Sequence[int]) -> tuple[int, ...] | None:
    """Into which gap each of the lengths goes, longest first; ``None`` if they do not fit."""
    if not lengths:
        return ()
    tried = set()
    for number, ways in enumerate(left):
        if ways >= lengths[0] and ways not in tried:
            tried.add(ways)
            rest = _share_out([*left[:number], ways - lengths[0], *left[number + 1 :]], lengths[1:])
            if rest is not None:
                return (number, *rest)
    return None
