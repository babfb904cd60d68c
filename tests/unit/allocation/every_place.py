# SPDX-License-Identifier: Apache-2.0
"""What fits on a small cache, found by trying every place for every mask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.unit.allocation.kernel import Kernel
from vmqos.allocation import Policy
from vmqos.allocation.cache_ways import CacheWays, Need
from vmqos.group_names import Owner, class_request, owner_of


def arrangements(cache_ways: CacheWays, lengths: Sequence[int], taken: int = 0) -> Iterator[tuple[int, ...]]:
    """Every way to place runs of these lengths side by side."""
    if not lengths:
        yield ()
        return
    for start in range(cache_ways.every.bit_length() - lengths[0] + 1):
        mask = ((1 << lengths[0]) - 1) << start
        if not mask & (taken | ~cache_ways.exclusive):
            for rest in arrangements(cache_ways, lengths[1:], taken | mask):
                yield (mask, *rest)


def pools(cache_ways: CacheWays, taken: int, need: Need) -> Iterator[int]:
    """Every pool that satisfies the need beside the masks."""
    if not need.width:
        yield 0
    for start in range(cache_ways.every.bit_length()):
        for length in range(max(need.width, cache_ways.fewest), cache_ways.every.bit_length() - start + 1):
            mask = ((1 << length) - 1) << start
            clean = (mask & ~cache_ways.company).bit_count()
            if not mask & (taken | ~cache_ways.pool) and clean >= need.clean:
                yield mask


def fits(cache_ways: CacheWays, lengths: Sequence[int], need: Need) -> bool:
    """Whether masks and pool have any place."""
    if cache_ways.sparse:
        total, clean = sum(lengths), cache_ways.pool & ~cache_ways.company
        return (
            total <= cache_ways.exclusive.bit_count()
            and cache_ways.pool.bit_count() - total >= need.width
            and clean.bit_count() - total >= need.clean
        )
    return any(any(True for _ in pools(cache_ways, sum(masks), need)) for masks in arrangements(cache_ways, lengths))


def is_moved(held: int, mask: int) -> bool:
    """Whether a mask is neither around its old place nor within it."""
    return bool(held) and held & mask not in (held, mask)


def fewest_moves(cache_ways: CacheWays, lengths: Sequence[int], held: Sequence[int], need: Need) -> int | None:
    """How many masks must move at least; ``None`` if nothing fits."""
    found = [
        sum(is_moved(old, new) for old, new in zip(held, masks, strict=True))
        for masks in arrangements(cache_ways, lengths)
        if any(True for _ in pools(cache_ways, sum(masks), need))
    ]
    return min(found, default=None)


def cache_ways_of(kernel: Kernel, policy: Policy, cache: int) -> CacheWays:
    """What a cache has to give, read from the kernel."""
    l3, foreign = kernel.resources[cache], [name for name in kernel.masks if owner_of(name) is Owner.FOREIGN]
    taken, reserved = kernel.others("", cache, foreign), policy.reserved_ways.bits if cache >= 0 else 0
    clean = l3.cbm_mask.bits & ~taken & ~reserved
    company = kernel.masks[""][cache] & taken & ~reserved
    exclusive = clean if policy.use_shareable_ways else clean & ~l3.shareable_bits.bits
    fewest = max(1, l3.min_cbm_bits)
    return CacheWays(
        l3.cbm_mask.bits, clean | company, company, exclusive, l3.shareable_bits.bits, fewest, l3.sparse_masks
    )


def _cap(name: str, cache: int) -> int:
    """What a class grants of a cache; 0 for no cap, and for what is no class."""
    grant = class_request(name)
    if grant is None:
        return 0
    return grant.l3_ways if cache >= 0 else (grant.l2_ways or 0)


def can_be_placed(kernel: Kernel, policy: Policy, name: str, ways: Mapping[int, int]) -> bool:
    """Whether a VM could have so many ways of its own on each of these caches, beside all others' present promises."""
    for cache, wanted in ways.items():
        floor = max(policy.default_ways_min, kernel.resources[cache].min_cbm_bits, 1)
        cache_ways = cache_ways_of(kernel, policy, cache)
        default, lengths, width = kernel.masks[""][cache], [wanted], floor
        for other, masks in kernel.masks.items():
            mask = masks[cache]
            if owner_of(other) is Owner.VM and other != name and not mask & default:
                if mask & ~cache_ways.exclusive:
                    cache_ways = cache_ways.without(mask)
                else:
                    lengths.append(mask.bit_count())
            width = max(width, min(_cap(other, cache), mask.bit_count()))
        if not fits(cache_ways, lengths, Need(width, floor)):
            return False
    return True
