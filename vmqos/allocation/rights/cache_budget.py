# SPDX-License-Identifier: Apache-2.0
"""What is promised on one cache, and whether more can be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmqos.allocation.cache_ways import CacheWays, Need, WantedMask, run, runs, union


@dataclass(slots=True)
class CacheBudget:
    """One cache's promises, filled in while requests are let in.

    :ivar cache_ways: what the cache has to give; the ways of ``stuck`` are not in it.
    :ivar wanted_masks: the exclusive masks that the planner places, by VM.
    :ivar stuck: the exclusive masks that can't be placed where they should be, and stay where they are, by VM.
    :ivar need: what it surely has: the floor, and what classes were granted, as far as there is room.
    :ivar frozen: whether every mask stays where it is, and no promise can be added.
    :ivar closed: whether no way can be promised exclusively.
    """

    cache_ways: CacheWays
    wanted_masks: dict[str, WantedMask]
    stuck: dict[str, int]
    need: Need
    frozen: bool
    closed: bool

    def lengths(self, without: str = "") -> tuple[int, ...]:
        """The lengths of the masks to be placed."""
        return tuple(wanted.length for key, wanted in self.wanted_masks.items() if key != without)

    def taken(self, without: str = "") -> int:
        """How many ways are promised exclusively, to other VMs than this one."""
        return sum(self.lengths(without)) + sum(mask.bit_count() for key, mask in self.stuck.items() if key != without)

    def takes(self, key: str, length: int) -> bool:
        """Whether the VM's mask can have that length."""
        if key in self.stuck or self.closed:
            return False
        return fits(self.cache_ways, (*self.lengths(key), length), self.need)

    def most(self, key: str) -> int:
        """The longest mask that the VM can have now."""
        if key in self.stuck or self.closed:
            return 0
        return largest_newcomer(self.cache_ways, self.lengths(key), self.need)

    def raise_pool(self, ways: int) -> None:
        """Promise the pool so many ways, or as many as there can be."""
        if ways > self.need.width:
            most = largest_pool(self.cache_ways, self.lengths(), self.need.clean)
            self.need = Need(max(self.need.width, min(ways, most)), self.need.clean)


def budget_for(
    cache_ways: CacheWays, held: Sequence[WantedMask], granted: int = 0, frozen: bool = False
) -> CacheBudget:
    """The budget with the ways that VMs have now, which they keep in any case.

    A mask on ways that can't be promised (a foreign group came, the operator reserved ways) moves away if it can.
    Neither that nor anything else takes from the pool what it can have.

    :param held: the masks by VM in order of arrival, none of them longer than it is now.
    :param granted: how many ways the largest class has.
    :param frozen: whether every mask stays where it is.
    """
    amiss = {wanted.key: wanted for wanted in held if frozen or wanted.held & ~cache_ways.exclusive}
    stuck = {
        key: cache_ways.best_part(wanted.held, wanted.length, (cache_ways.exclusive, cache_ways.pool))
        for key, wanted in amiss.items()
    }
    wanted_masks = {wanted.key: wanted for wanted in held if wanted.key not in stuck}
    left = cache_ways.without(union(stuck.values())) if stuck else cache_ways
    need = _need(left, wanted_masks, granted)
    if stuck and not frozen:
        if fits(cache_ways, [wanted.length for wanted in held], need):
            wanted_masks, stuck = {wanted.key: wanted for wanted in held}, {}
        for key in list(stuck):
            others = {other: mask for other, mask in stuck.items() if other != key}
            lengths = [wanted.length for wanted in (*wanted_masks.values(), amiss[key])]
            if fits(cache_ways.without(union(others.values())), lengths, need):
                stuck = others
                wanted_masks[key] = amiss[key]
        left = cache_ways.without(union(stuck.values()))
        need = _need(left, wanted_masks, granted)
    return CacheBudget(left, wanted_masks, stuck, need, frozen, frozen or need.clean < cache_ways.floor)


def _need(left: CacheWays, wanted_masks: Mapping[str, WantedMask], granted: int) -> Need:
    """What the pool can have of its floor and of what the largest class has, the width first."""
    lengths = [wanted.length for wanted in wanted_masks.values()]
    width = min(max(left.floor, granted), largest_pool(left, lengths))
    clean = range(min(left.floor, width), -1, -1)
    return Need(width, next((ways for ways in clean if fits(left, lengths, Need(width, ways))), 0))


def fits(cache_ways: CacheWays, lengths: Collection[int], need: Need) -> bool:
    """Whether exclusive masks of these lengths fit beside the pool that is needed, wherever they may lie.

    The answer is exact, and it does not depend on where the masks are now. So it does not matter at which of a plan's
    steps an agent was killed: the next plan lets in the same VMs.
    """
    total, width = sum(lengths), cache_ways.pool.bit_count()
    clean = width - cache_ways.company.bit_count()
    if total > cache_ways.exclusive.bit_count() or total + need.width > width or total + need.clean > clean:
        return False
    if cache_ways.sparse:
        return True
    wanted = sorted(lengths, reverse=True)
    return any(
        _pack_into([length for _, length in runs(cache_ways.exclusive & ~place)], wanted)
        for place in _pools(cache_ways, need)
    )


def largest_pool(cache_ways: CacheWays, lengths: Collection[int], clean: int = 0) -> int:
    """The most ways that a pool can have beside exclusive masks of these lengths; 0 if it can have no legal mask.

    :param clean: how many of them must be without company.
    """
    most = cache_ways.pool.bit_count() - sum(lengths)
    return next(
        (size for size in range(most, cache_ways.fewest - 1, -1) if fits(cache_ways, lengths, Need(size, clean))), 0
    )


def largest_newcomer(cache_ways: CacheWays, lengths: Collection[int], need: Need) -> int:
    """The most ways that one more exclusive mask can have beside these and the pool; 0 if it can have no legal mask."""
    most = cache_ways.exclusive.bit_count() - sum(lengths)
    return next(
        (size for size in range(most, cache_ways.fewest - 1, -1) if fits(cache_ways, (*lengths, size), need)), 0
    )


def unpromised(cache_ways: CacheWays, lengths: Collection[int], need: Need) -> int:
    """How many ways can be promised exclusively beside these masks and the pool, to however many VMs; 0 or more."""
    total = sum(lengths)
    if cache_ways.sparse:
        clean = cache_ways.pool.bit_count() - cache_ways.company.bit_count()
        left = (cache_ways.exclusive.bit_count(), cache_ways.pool.bit_count() - need.width, clean - need.clean)
        return max(0, min(left) - total)
    wanted = sorted(lengths, reverse=True)
    gaps = [cache_ways.exclusive & ~place for place in _pools(cache_ways, need)]
    fitting = (ways for ways in gaps if _pack_into([length for _, length in runs(ways)], wanted))
    return max((ways.bit_count() - total for ways in fitting), default=0)


def _pools(cache_ways: CacheWays, need: Need) -> Iterator[int]:
    """From each way on, the shortest run that is pool enough; the empty one alone if none is needed."""
    if not need.width:
        yield 0
        return
    for start, length in runs(cache_ways.pool):
        for first in range(start, start + length):
            for size in range(need.width, start + length - first + 1):
                place = run(first, size)
                if (place & ~cache_ways.company).bit_count() >= need.clean:
                    yield place
                    break


def _pack_into(gaps: Sequence[int], lengths: Sequence[int]) -> bool:
    """Whether the lengths, longest first, can be shared out to the gaps (bin packing; a cache has few of both)."""
    if not lengths:
        return True
    if sum(lengths) > sum(gaps):
        return False
    first, rest = lengths[0], lengths[1:]
    for gap in sorted({gap for gap in gaps if gap >= first}):
        left = list(gaps)
        left.remove(gap)
        if gap > first:
            left.append(gap - first)
        if _pack_into(left, rest):
            return True
    return False
