# SPDX-License-Identifier: Apache-2.0
"""Whether the masks of one small cache can be brought to where all requests fit, found by trying every single write.

It shares no code with the planner, and none of its ideas: no rows, no gaps, no pushes. A state is where every mask
lies, a step is one mask written anywhere.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cache:
    """A cache on which masks may have no gaps.

    :ivar width: how many ways it has.
    :ivar shared_ways: the ways that the default group may have.
    :ivar vm_ways: the ways that a VM may have for itself.
    :ivar least: how many ways the default group has to have at any time.
    """

    width: int
    shared_ways: int
    vm_ways: int
    least: int

    def places(self, size: int, within: int) -> list[int]:
        """Every mask of that size within some ways."""
        masks = (((1 << size) - 1) << low for low in range(self.width - size + 1))
        return [mask for mask in masks if not mask & ~within]


def can_be_reached(
    cache: Cache, default: int, now: Sequence[int], goals: Sequence[int], newcomers: Sequence[int], most: int = 400_000
) -> bool:
    """Whether there is a safe order of writes.

    :param now: the mask of each VM, no two of which overlap.
    :param goals: how many ways each of these is to have. It never has fewer than now, unless it is to have fewer.
    :param newcomers: how many ways are to be left for each VM to come.
    :param most: how many states are looked at.
    :raises RuntimeError: if there are more.
    """
    sizes = [min(mask.bit_count(), goal) for mask, goal in zip(now, goals, strict=True)]
    # A mask within the present one, cut to size: whichever it is, a single write leads from the one to the other.
    cut = [next(place for place in cache.places(size, mask)) for size, mask in zip(sizes, now, strict=True)]
    kinds = list(zip(sizes, goals, strict=True))
    vm_places = [cache.places(size, cache.vm_ways) for size in sizes]
    default_places = list(
        itertools.chain.from_iterable(
            cache.places(size, cache.shared_ways) for size in {cache.least, min(cache.least, default.bit_count())}
        )
    )
    start = (default, tuple(cut))
    seen = {_name(start, kinds)}
    waiting = deque([start])
    while waiting:
        pool, masks = waiting.popleft()
        if pool.bit_count() >= cache.least and _ends(cache, pool, masks, goals, newcomers):
            return True
        for state in _writes(pool, masks, vm_places, default_places):
            if (name := _name(state, kinds)) not in seen:
                seen.add(name)
                waiting.append(state)
                if len(seen) > most:
                    raise RuntimeError("too many states")
    return False


def _writes(
    pool: int, masks: tuple[int, ...], vm_places: Sequence[Sequence[int]], default_places: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    taken = sum(masks)
    for place in default_places:
        if not place & taken:
            yield place, masks
    for number, mask in enumerate(masks):
        others = taken - mask | pool
        for place in vm_places[number]:
            if not place & others:
                yield pool, (*masks[:number], place, *masks[number + 1 :])


def _name(state: tuple[int, tuple[int, ...]], kinds: Sequence[tuple[int, int]]) -> tuple[object, ...]:
    """VMs with the same numbers of ways can stand for one another."""
    return state[0], tuple(sorted(zip(kinds, state[1], strict=True)))


def _ends(cache: Cache, pool: int, masks: Sequence[int], goals: Sequence[int], newcomers: Sequence[int]) -> bool:
    """Whether every mask can grow where it is, and everybody who comes finds a place beside."""
    wanted = [
        [place for place in cache.places(goal, cache.vm_ways) if not mask & ~place]
        for mask, goal in zip(masks, goals, strict=True)
    ]
    wanted += [cache.places(size, cache.vm_ways) for size in newcomers]
    return _fit(wanted, pool)


def _fit(wanted: Sequence[Sequence[int]], taken: int) -> bool:
    if not wanted:
        return True
    return any(_fit(wanted[1:], taken | place) for place in wanted[0] if not place & taken)
