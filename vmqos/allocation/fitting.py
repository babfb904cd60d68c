# SPDX-License-Identifier: Apache-2.0
"""Whether masks of certain lengths, and the shared pool, fit onto one cache at all, wherever they may lie.

The answer is exact, and it does not depend on where the masks are now. So it does not matter at which of a plan's steps
an agent was killed: the next plan lets in the same VMs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from vmqos.allocation.cache_ways import CacheWays, Need, run, runs


def fits(cache_ways: CacheWays, lengths: Collection[int], need: Need) -> bool:
    """Whether exclusive masks of these lengths fit beside the pool that is needed."""
    total, width = sum(lengths), cache_ways.pool.bit_count()
    clean = width - cache_ways.company.bit_count()
    if total > cache_ways.exclusive.bit_count() or total + need.width > width or total + need.clean > clean:
        return False
    if cache_ways.sparse:
        return True
    wanted = sorted(lengths, reverse=True)
    return any(_pack_into(_lengths(cache_ways.exclusive & ~place), wanted) for place in _pools(cache_ways, need))


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
    return max((ways.bit_count() - total for ways in gaps if _pack_into(_lengths(ways), wanted)), default=0)


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


def _lengths(ways: int) -> list[int]:
    return [length for _, length in runs(ways)]


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
