# SPDX-License-Identifier: Apache-2.0
"""Where on one cache each exclusive mask and the shared pool lie, with as few moved masks as possible.

A mask that keeps its place, grows around it or shrinks within it is not moved. Among the packings with the fewest moved
masks the one is taken that gives out the fewest ways of I/O, then the one with the largest pool, then the one whose
pool has the least company and the most ways of I/O, then the one whose pool keeps most of its ways, then the first in a
fixed order of patterns. With every mask that came to its place this packing becomes cheaper by as much as any can,
so that a plan which is made anew between two steps of an earlier one finds the same packing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vmqos.allocation.cache_ways import CacheWays, Need, WantedMask, lowest, run, runs, take, union

_POOL, _LOOSE, _NOTHING = -1, -2, -3
_WEIGHT = 64
"""More than a mask has ways: the kernel's masks have up to 32."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The places found.

    :ivar pool: the pool's ways; 0 if none was asked for and none was left.
    :ivar masks: the ways of each mask by its key.
    """

    pool: int
    masks: dict[str, int]


def pack(cache_ways: CacheWays, wanted_masks: Sequence[WantedMask], need: Need, pool_now: int = 0) -> Packing:
    """Place every mask, and the pool.

    :param wanted_masks: those that come first get the lower places among equals.
    :param pool_now: the ways that the pool has now.
    :raises ValueError: if they do not fit (:func:`vmqos.allocation.rights.cache_budget.fits`).
    """
    if cache_ways.sparse:
        return _scatter(cache_ways, wanted_masks)
    if all(
        wanted.held.bit_count() == wanted.length and not wanted.held & ~cache_ways.exclusive for wanted in wanted_masks
    ):
        # On most caches, most of the time, every mask can stay as it is.
        places = (run(*place) for place in runs(cache_ways.pool & ~union(wanted.held for wanted in wanted_masks)))
        pools = [pool for pool in places if is_enough(cache_ways, pool, need)]
        if pools or not need.width:
            pool = min(pools, key=lambda pool: pool_cost(cache_ways, pool, pool_now), default=0)
            return Packing(pool, {wanted.key: wanted.held for wanted in wanted_masks})
    for moves in range(len(wanted_masks) + 1):
        found = _Search(cache_ways, wanted_masks, need, pool_now, moves).find()
        if found is not None:
            return found
    raise ValueError(f"masks of {[wanted.length for wanted in wanted_masks]} ways and a pool with {need} do not fit")


def is_enough(cache_ways: CacheWays, pool: int, need: Need) -> bool:
    """Whether the ways are a pool as it must be."""
    clean = (pool & ~cache_ways.company).bit_count()
    return pool.bit_count() >= max(need.width, cache_ways.fewest) and clean >= need.clean


def pool_cost(cache_ways: CacheWays, pool: int, pool_now: int) -> int:
    """The lower the better: the length counts most, then what is in the run."""
    cost = (pool & cache_ways.company).bit_count() - pool.bit_count() * _WEIGHT
    for liked in (cache_ways.shareable, pool_now):
        cost = cost * _WEIGHT - (pool & liked).bit_count()
    return cost


def _scatter(cache_ways: CacheWays, wanted_masks: Sequence[WantedMask]) -> Packing:
    """Where masks may have gaps, each keeps its ways, and takes or leaves the rest way by way."""
    taken = union(wanted.held for wanted in wanted_masks)
    masks = {}
    for wanted in sorted(wanted_masks, key=lambda wanted: wanted.length >= wanted.held.bit_count()):
        mask = wanted.held & cache_ways.exclusive
        if mask.bit_count() > wanted.length:
            kept = take(mask & ~cache_ways.shareable, min(wanted.length, (mask & ~cache_ways.shareable).bit_count()))
            mask = kept | take(mask & ~kept, wanted.length - kept.bit_count())
        taken = taken & ~wanted.held | mask
        masks[wanted.key] = mask
    for wanted in wanted_masks:
        for free in (
            cache_ways.exclusive & ~cache_ways.shareable & ~taken,
            cache_ways.exclusive & cache_ways.shareable & ~taken,
        ):
            missing = wanted.length - masks[wanted.key].bit_count()
            more = take(free, min(missing, free.bit_count()))
            masks[wanted.key] |= more
            taken |= more
        if masks[wanted.key].bit_count() < wanted.length:
            raise ValueError(f"{wanted.length} ways for {wanted.key} do not fit")
    return Packing(cache_ways.pool & ~taken, masks)


class _State(NamedTuple):
    """How far a search has come, going up the ways.

    :ivar way: the ways below this one are settled.
    :ivar loose: for each length, how many masks still need a place anywhere; negative where places were given ahead to
        masks that turn out further up to be moved.
    :ivar kept: bit *i* is set if fixed mask *i* has its place, and where it was is not passed yet.
    :ivar pooled: whether the pool has its place.
    :ivar moves: how many more masks may be moved.
    :ivar gap: whether the way below was left to no mask.
    """

    way: int
    loose: tuple[int, ...]
    kept: int
    pooled: bool
    moves: int
    gap: bool


class _Choice(NamedTuple):
    """What a search puts at a way.

    :ivar what: a fixed mask's index, or ``_POOL``, ``_LOOSE`` or ``_NOTHING``.
    :ivar length: how many ways it gets.
    """

    what: int
    length: int
    after: _State


class _Search:
    """Dynamic programming over the ways of one cache, with at most ``moves`` moved masks."""

    def __init__(
        self, cache_ways: CacheWays, wanted_masks: Sequence[WantedMask], need: Need, pool_now: int, moves: int
    ) -> None:
        self._cache_ways = cache_ways
        self._width = cache_ways.every.bit_length()
        self._wanted_masks = wanted_masks
        self._need = need
        self._pool_now = pool_now
        self._largest_pool = cache_ways.pool.bit_count() - sum(wanted.length for wanted in wanted_masks)
        self._lengths = sorted({wanted.length for wanted in wanted_masks}, reverse=True)
        self._starts = {
            index: kept_starts(cache_ways, wanted) for index, wanted in enumerate(wanted_masks) if wanted.held
        }
        self._starts = {index: starts for index, starts in self._starts.items() if starts}
        self._ending: dict[int, list[int]] = {}
        self._last: dict[int, int] = {}
        for index, starts in self._starts.items():
            self._ending.setdefault(starts[-1], []).append(index)
            self._last[wanted_masks[index].length] = max(starts[-1], self._last.get(wanted_masks[index].length, -1))
        loose = [0] * len(self._lengths)
        for index, wanted in enumerate(wanted_masks):
            if index not in self._starts:
                loose[self._lengths.index(wanted.length)] += 1
        self._start = _State(0, tuple(loose), 0, False, moves, False)
        self._best: dict[_State, tuple[int, _Choice | None] | None] = {}

    def find(self) -> Packing | None:
        """The best packing; ``None`` if none needs so few moves."""
        state, pool = self._start, 0
        masks: dict[str, int] = {}
        places: dict[int, list[int]] = {}
        if self._cost(state) is None:
            return None
        while (found := self._best[state]) is not None and (choice := found[1]) is not None:
            place = run(state.way, choice.length)
            if choice.what == _POOL:
                pool = place
            elif choice.what == _LOOSE:
                places.setdefault(choice.length, []).append(place)
            elif choice.what != _NOTHING:
                masks[self._wanted_masks[choice.what].key] = place
            state = choice.after
        for wanted in self._wanted_masks:
            if wanted.key not in masks:
                masks[wanted.key] = places[wanted.length].pop(0)
        return Packing(pool, masks)

    def _cost(self, state: _State) -> int | None:
        """The least cost of what is left to place; ``None`` if it can't be placed."""
        if state in self._best:
            found = self._best[state]
            return None if found is None else found[0]
        best: tuple[int, _Choice | None] | None = None
        if state.way >= self._width:
            if not any(state.loose) and (state.pooled or not self._need.width):
                best = (0, None)
        else:
            for choice, cost in self._choices(state):
                rest = self._cost(choice.after)
                if rest is not None and (best is None or cost + rest < best[0]):
                    best = (cost + rest, choice)
        self._best[state] = best
        return None if best is None else best[0]

    def _choices(self, state: _State) -> Iterator[tuple[_Choice, int]]:
        """What can be put at the next way: first masks, the longest first, then the pool, then nothing."""
        for number, length in enumerate(self._lengths):
            place = run(state.way, length)
            if place & ~self._cache_ways.exclusive:
                continue
            cost = (place & self._cache_ways.shareable).bit_count() * _WEIGHT**4
            for index, starts in self._starts.items():
                unsettled = not state.kept >> index & 1
                if unsettled and self._wanted_masks[index].length == length and state.way in starts:
                    yield from self._put(state, index, length, state.loose, state.kept | 1 << index, cost)
            if state.loose[number] <= 0 and not (state.moves and self._last.get(length, -1) >= state.way):
                continue
            lower, io = place >> 1, self._cache_ways.shareable
            could_be_lower = not lower & ~self._cache_ways.exclusive
            if state.gap and could_be_lower and (lower & io).bit_count() <= (place & io).bit_count():
                continue  # The gap below would be for nothing.
            loose = tuple(count - (other == number) for other, count in enumerate(state.loose))
            yield from self._put(state, _LOOSE, length, loose, state.kept, cost)
        if not state.pooled and not (state.gap and self._cache_ways.pool >> (state.way - 1) & 1):
            longest = lowest(~(self._cache_ways.pool >> state.way))
            for length in range(min(longest, self._largest_pool), 0, -1):
                place = run(state.way, length)
                if not is_enough(self._cache_ways, place, self._need):
                    break
                cost = pool_cost(self._cache_ways, place, self._pool_now)
                yield from self._put(state, _POOL, length, state.loose, state.kept, cost)
        yield from self._put(state, _NOTHING, 0, state.loose, state.kept, 0)

    def _put(
        self, state: _State, what: int, length: int, loose: tuple[int, ...], kept: int, cost: int
    ) -> Iterator[tuple[_Choice, int]]:
        """The choice, unless it would need too many moves."""
        end, moves = state.way + max(length, 1), state.moves
        for way in range(state.way, end):
            for index in self._ending.get(way, ()):
                if kept >> index & 1:
                    kept &= ~(1 << index)
                else:
                    moves -= 1
                    number = self._lengths.index(self._wanted_masks[index].length)
                    loose = tuple(count + (other == number) for other, count in enumerate(loose))
        if moves < 0 or -sum(count for count in loose if count < 0) > moves:
            return
        pooled = state.pooled or what == _POOL
        left = (self._cache_ways.pool >> end).bit_count() - (0 if pooled else self._need.width)
        if sum(count * size for count, size in zip(loose, self._lengths, strict=True) if count > 0) > left:
            return
        yield _Choice(what, length, _State(end, loose, kept, pooled, moves, what == _NOTHING)), cost


def kept_starts(cache_ways: CacheWays, wanted: WantedMask) -> tuple[int, ...]:
    """From which ways on the mask can lie without being moved, ascending; none if it must move."""
    start, length = lowest(wanted.held), wanted.held.bit_count()
    if wanted.length >= length:
        starts = range(max(0, start + length - wanted.length), start + 1)
    else:
        starts = range(start, start + length - wanted.length + 1)
    return tuple(first for first in starts if not run(first, wanted.length) & ~cache_ways.exclusive)
