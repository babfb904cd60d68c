# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.allocation import every_place
from vmqos.allocation.cache_ways import CacheWays, Need, WantedMask, longest_run, run, union
from vmqos.allocation.masks.packing import Packing, pack
from vmqos.allocation.rights.cache_budget import fits


@st.composite
def cache_ways(draw: st.DrawFn, most: int = 9, sparse: bool = False) -> CacheWays:
    width = draw(st.integers(4, most))
    every = run(0, width)
    blocked = draw(st.integers(0, every)) & draw(st.integers(0, every)) & draw(st.integers(0, every))
    company = blocked & draw(st.integers(0, every))
    shareable = draw(st.sampled_from([0, 0, 1 << (width - 1), 3 << (width - 2), 1]))
    exclusive = every & ~blocked & ~(shareable if draw(st.booleans()) else 0)
    return CacheWays(every, every & ~blocked | company, company, exclusive, shareable, draw(st.integers(1, 2)), sparse)


@st.composite
def masks_on(draw: st.DrawFn, cache_ways: CacheWays, most: int = 4) -> list[WantedMask]:
    """Masks that lie side by side, and how long they are to be; some are new, some in places that they must leave."""
    wanted_masks, taken, width = [], 0, cache_ways.every.bit_length()
    for number in range(draw(st.integers(0, most))):
        held, length = 0, draw(st.integers(cache_ways.fewest, max(cache_ways.fewest, width // 2)))
        if draw(st.integers(0, 3)):
            start = draw(st.integers(0, width - cache_ways.fewest))
            held = run(start, min(length, width - start)) & cache_ways.every
            if held & taken or held.bit_count() < cache_ways.fewest:
                held = 0
            elif draw(st.booleans()):
                length = held.bit_count()
        taken |= held
        wanted_masks.append(WantedMask(str(number), length, held))
    return wanted_masks


@st.composite
def needs(draw: st.DrawFn) -> Need:
    width = draw(st.sampled_from([0, 2, 3, 4]))
    return Need(width, draw(st.integers(0, min(width, 2))))


def moved(wanted_masks: list[WantedMask], found: Packing) -> int:
    return sum(every_place.is_moved(wanted.held, found.masks[wanted.key]) for wanted in wanted_masks)


@given(st.data(), cache_ways(), needs())
def test_no_packing_moves_fewer_masks(data: st.DataObject, cache_ways: CacheWays, need: Need) -> None:
    wanted_masks = data.draw(masks_on(cache_ways))
    lengths, held = [wanted.length for wanted in wanted_masks], [wanted.held for wanted in wanted_masks]
    least = every_place.fewest_moves(cache_ways, lengths, held, need)
    assume(least is not None)
    found = pack(cache_ways, wanted_masks, need)
    assert moved(wanted_masks, found) == least


@given(st.data(), cache_ways(most=20), needs())
def test_masks_lie_side_by_side_where_they_may(data: st.DataObject, cache_ways: CacheWays, need: Need) -> None:
    wanted_masks = data.draw(masks_on(cache_ways, 6))
    assume(fits(cache_ways, [wanted.length for wanted in wanted_masks], need))
    found = pack(cache_ways, wanted_masks, need)
    masks = [found.masks[wanted.key] for wanted in wanted_masks]
    assert [mask.bit_count() for mask in masks] == [wanted.length for wanted in wanted_masks]
    assert [longest_run(mask) for mask in masks] == [wanted.length for wanted in wanted_masks]
    assert sum(masks) == union(masks) and not union(masks) & (~cache_ways.exclusive | found.pool)
    assert found.pool.bit_count() == longest_run(found.pool) >= need.width
    assert not found.pool & ~cache_ways.pool and (found.pool & ~cache_ways.company).bit_count() >= need.clean


@given(st.data(), cache_ways(most=20, sparse=True), needs())
def test_a_mask_that_may_have_gaps_leaves_no_way_that_it_may_keep(
    data: st.DataObject, cache_ways: CacheWays, need: Need
) -> None:
    wanted_masks = data.draw(masks_on(cache_ways, 6))
    assume(fits(cache_ways, [wanted.length for wanted in wanted_masks], need))
    found = pack(cache_ways, wanted_masks, need)
    masks = [found.masks[wanted.key] for wanted in wanted_masks]
    assert [mask.bit_count() for mask in masks] == [wanted.length for wanted in wanted_masks]
    assert sum(masks) == union(masks) and not union(masks) & ~cache_ways.exclusive
    assert found.pool == cache_ways.pool & ~union(masks)
    for wanted, mask in zip(wanted_masks, masks, strict=True):
        may_keep = wanted.held & cache_ways.exclusive
        assert may_keep & mask in (may_keep, mask)


@given(st.data(), cache_ways(most=16), needs())
def test_a_packing_that_is_in_force_stays(data: st.DataObject, cache_ways: CacheWays, need: Need) -> None:
    wanted_masks = data.draw(masks_on(cache_ways, 5))
    assume(fits(cache_ways, [wanted.length for wanted in wanted_masks], need))
    first = pack(cache_ways, wanted_masks, need)
    again = pack(
        cache_ways, [WantedMask(wanted.key, wanted.length, first.masks[wanted.key]) for wanted in wanted_masks], need
    )
    assert again == first


CACHE = CacheWays(0x7FF, 0x7FF, 0, 0x1FF, 0x600, 1, False)


@pytest.mark.parametrize(
    ("wanted_masks", "pool", "masks"),
    [
        pytest.param([], 0x7FF, {}, id="the pool has everything"),
        pytest.param([WantedMask("a", 2)], 0x7FC, {"a": 0x3}, id="the first mask is at the end that I/O does not fill"),
        pytest.param(
            [WantedMask("a", 2), WantedMask("b", 3)], 0x7E0, {"a": 0x18, "b": 0x7}, id="longer masks lie lower"
        ),
        pytest.param(
            [WantedMask("b", 2), WantedMask("a", 2)], 0x7F0, {"a": 0xC, "b": 0x3}, id="of equals the first lies lower"
        ),
        pytest.param([WantedMask("a", 4, 0x3)], 0x7F0, {"a": 0xF}, id="a mask grows in place"),
        pytest.param(
            [WantedMask("a", 1, 0xC)], 0x7F8, {"a": 0x4}, id="a mask shrinks in place so that the pool gains most"
        ),
        pytest.param([WantedMask("b", 2), WantedMask("a", 2, 0x3)], 0x7F0, {"a": 0x3, "b": 0xC}, id="what lies lies"),
        pytest.param(
            [WantedMask("a", 2, 0x18), WantedMask("b", 7)], 0x600, {"a": 0x180, "b": 0x7F}, id="a move makes room"
        ),
    ],
)
def test_where_masks_go(wanted_masks: list[WantedMask], pool: int, masks: dict[str, int]) -> None:
    found = pack(CACHE, wanted_masks, Need(2, 2))
    assert (found.pool, found.masks) == (pool, masks)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        pack(CACHE, [WantedMask("a", 10)], Need(2, 2))
    with pytest.raises(ValueError, match="do not fit"):
        pack(CacheWays(0xF, 0xF, 0, 0xF, 0, 1, True), [WantedMask("a", 5)], Need(0, 0))
