# SPDX-License-Identifier: Apache-2.0
"""Whether masks of certain lengths, and the shared pool, fit onto one cache at all, wherever they may lie.

The answer is exact, and it does not depend on where the masks are now. So it does not matter at which of a plan's steps
an agent was killed: the next plan lets in the same VMs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from vmqos.allocation.line import Line, run, runs


def fits(line: Line, lengths: Collection[int], pool: int) -> bool:
    """Whether exclusive masks of these lengths fit beside a pool of at least ``pool`` ways.

    :param pool: how many ways the default group needs; 0 where it needs none of the ways that may be promised.
    """
    total = sum(lengths)
    if total > line.exclusive.bit_count() or total + pool > line.pool.bit_count():
        return False
    if line.sparse:
        return True
    wanted = sorted(lengths, reverse=True)
    return any(_pack_into(_lengths(line.exclusive & ~place), wanted) for place in pool_places(line, pool))


def largest_pool(line: Line, lengths: Collection[int]) -> int:
    """The most ways that a pool can have beside exclusive masks of these lengths; 0 if it can have no legal mask."""
    most = line.pool.bit_count() - sum(lengths)
    return next((size for size in range(most, line.fewest - 1, -1) if fits(line, lengths, size)), 0)


def largest_newcomer(line: Line, lengths: Collection[int], pool: int) -> int:
    """The most ways that one more exclusive mask can have beside these and the pool; 0 if it can have no legal mask."""
    most = line.pool.bit_count() - sum(lengths) - pool
    return next((size for size in range(most, line.fewest - 1, -1) if fits(line, (*lengths, size), pool)), 0)


def unpromised(line: Line, lengths: Collection[int], pool: int) -> int:
    """How many ways can be promised exclusively beside these masks and the pool, to however many VMs; 0 or more."""
    total = sum(lengths)
    if line.sparse:
        return max(0, min(line.exclusive.bit_count() - total, line.pool.bit_count() - total - pool))
    wanted = sorted(lengths, reverse=True)
    left = [line.exclusive & ~place for place in pool_places(line, pool)]
    return max((ways.bit_count() - total for ways in left if _pack_into(_lengths(ways), wanted)), default=0)


def pool_places(line: Line, size: int) -> Iterator[int]:
    """Each run of that size which the pool may have; the empty one alone if the size is 0."""
    if not size:
        yield 0
        return
    for start, length in runs(line.pool):
        for first in range(start, start + length - size + 1):
            yield run(first, size)


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
