# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.allocation import every_place
from tests.unit.allocation.test_packing import cache_ways, needs
from vmqos.allocation.cache_ways import CacheWays, Need
from vmqos.allocation.fitting import fits, largest_newcomer, largest_pool, unpromised

LENGTHS = st.lists(st.integers(1, 4), max_size=4)
CACHE = CacheWays(0x7FF, 0x7FF, 0, 0x1FF, 0x600, 1, False)


@given(cache_ways(), LENGTHS, needs())
def test_what_fits_is_what_somebody_who_tries_everything_finds(
    cache_ways: CacheWays, lengths: list[int], need: Need
) -> None:
    assert fits(cache_ways, lengths, need) == every_place.fits(cache_ways, lengths, need)


@given(cache_ways(sparse=True), LENGTHS, needs())
def test_where_masks_may_have_gaps_numbers_decide(cache_ways: CacheWays, lengths: list[int], need: Need) -> None:
    assert fits(cache_ways, lengths, need) == every_place.fits(cache_ways, lengths, need)


@given(cache_ways(), LENGTHS, needs(), st.integers(1, 4))
def test_who_does_not_fit_does_not_fit_when_others_came(
    cache_ways: CacheWays, lengths: list[int], need: Need, more: int
) -> None:
    if fits(cache_ways, [*lengths, more], need):
        assert fits(cache_ways, lengths, need)


@given(st.booleans().flatmap(lambda sparse: cache_ways(sparse=sparse)), LENGTHS, needs())
def test_the_largest_that_fits_fits_and_no_larger_one(cache_ways: CacheWays, lengths: list[int], need: Need) -> None:
    most = largest_newcomer(cache_ways, lengths, need)
    assert not most or fits(cache_ways, [*lengths, most], need)
    assert not any(
        fits(cache_ways, [*lengths, size], need)
        for size in range(max(most + 1, cache_ways.fewest), cache_ways.width + 1)
    )
    pool = largest_pool(cache_ways, lengths)
    assert not pool or fits(cache_ways, lengths, Need(pool, 0))
    assert not any(
        fits(cache_ways, lengths, Need(size, 0))
        for size in range(max(pool + 1, cache_ways.fewest), cache_ways.width + 1)
    )


@given(st.booleans().flatmap(lambda sparse: cache_ways(sparse=sparse)), LENGTHS, needs())
def test_all_unpromised_ways_can_be_promised_one_by_one(cache_ways: CacheWays, lengths: list[int], need: Need) -> None:
    left = unpromised(cache_ways, lengths, need)
    assert fits(cache_ways, [*lengths, *[1] * left], need) or not left
    assert not fits(cache_ways, [*lengths, *[1] * (left + 1)], need)


@pytest.mark.parametrize(
    ("lengths", "need", "expected"),
    [
        ((), Need(2, 2), 9),
        ((4,), Need(2, 2), 5),
        ((4,), Need(4, 2), 3),
        ((9,), Need(2, 2), 0),
        ((3, 3), Need(11, 2), 0),
    ],
)
def test_a_newcomer_gets_what_others_and_the_pool_leave(lengths: tuple[int, ...], need: Need, expected: int) -> None:
    assert largest_newcomer(CACHE, lengths, need) == expected
