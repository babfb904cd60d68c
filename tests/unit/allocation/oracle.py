# SPDX-License-Identifier: Apache-2.0
"""What fits on a small cache, found by trying every place for every mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmqos.allocation.line import Line, Need


def arrangements(line: Line, lengths: Sequence[int], taken: int = 0) -> Iterator[tuple[int, ...]]:
    """Every way to place runs of these lengths side by side."""
    if not lengths:
        yield ()
        return
    for start in range(line.width - lengths[0] + 1):
        mask = ((1 << lengths[0]) - 1) << start
        if not mask & (taken | ~line.exclusive):
            for rest in arrangements(line, lengths[1:], taken | mask):
                yield (mask, *rest)


def pools(line: Line, taken: int, need: Need) -> Iterator[int]:
    """Every pool that satisfies the need beside the masks."""
    if not need.width:
        yield 0
    for start in range(line.width):
        for length in range(max(need.width, line.fewest), line.width - start + 1):
            mask = ((1 << length) - 1) << start
            clean = (mask & ~line.company).bit_count()
            if not mask & (taken | ~line.pool) and clean >= need.clean:
                yield mask


def fits(line: Line, lengths: Sequence[int], need: Need) -> bool:
    """Whether masks and pool have any place."""
    if line.sparse:
        total, clean = sum(lengths), line.pool & ~line.company
        return (
            total <= line.exclusive.bit_count()
            and line.pool.bit_count() - total >= need.width
            and clean.bit_count() - total >= need.clean
        )
    return any(any(True for _ in pools(line, sum(masks), need)) for masks in arrangements(line, lengths))


def is_moved(held: int, mask: int) -> bool:
    """Whether a mask is neither around its old place nor within it."""
    return bool(held) and held & mask not in (held, mask)


def fewest_moves(line: Line, lengths: Sequence[int], held: Sequence[int], need: Need) -> int | None:
    """How many masks must move at least; ``None`` if nothing fits."""
    found = [
        sum(is_moved(old, new) for old, new in zip(held, masks, strict=True))
        for masks in arrangements(line, lengths)
        if any(True for _ in pools(line, sum(masks), need))
    ]
    return min(found, default=None)
