# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.allocation import every_place
from tests.unit.allocation.masks.test_packing import cache_ways, needs
from vmqos.allocation.cache_ways import CacheWays, Need, WantedMask
from vmqos.allocation.rights.cache_budget import budget_for, fits, largest_newcomer, largest_pool, unpromised

CACHE = CacheWays(0x7FF, 0x7FF, 0, 0x1FF, 0x600, 1, False, floor=2)
LENGTHS = st.lists(st.integers(1, 4), max_size=4)


def test_the_pool_has_its_floor_and_what_classes_were_granted() -> None:
    assert budget_for(CACHE, [WantedMask("a", 3, 0x7)]).need == Need(2, 2)
    assert budget_for(CACHE, [WantedMask("a", 3, 0x7)], granted=5).need == Need(5, 2)


def test_what_a_class_was_granted_gives_way_to_masks_that_are_there() -> None:
    budget = budget_for(CACHE, [WantedMask("a", 3, 0x7)], granted=10)
    assert budget.need == Need(8, 2) and not budget.closed


def test_a_mask_on_ways_that_a_foreign_group_took_is_placed_anew() -> None:
    budget = budget_for(CACHE.without(0x6), [WantedMask("a", 3, 0x7)])
    assert budget.wanted_masks == {"a": WantedMask("a", 3, 0x7)} and not budget.stuck


def test_where_there_is_no_room_it_is_stuck_and_nobody_else_is_given_its_ways() -> None:
    budget = budget_for(CACHE.without(0xF0), [WantedMask("a", 6, 0x3F)])
    assert budget.stuck == {"a": 0x3F} and not budget.wanted_masks
    assert not budget.cache_ways.pool & 0x3F
    assert budget.takes("b", 1) and not budget.takes("a", 7) and budget.most("a") == 0


def test_of_several_that_can_not_all_move_the_first_to_come_moves() -> None:
    cache_ways = CACHE.without(0xFF)
    budget = budget_for(cache_ways, [WantedMask("a", 1, 0x3), WantedMask("b", 1, 0xC)])
    assert set(budget.wanted_masks) == {"a"} and set(budget.stuck) == {"b"}


def test_a_stuck_mask_shrinks_away_from_what_is_not_its_own() -> None:
    assert budget_for(CACHE.without(0x1F7), [WantedMask("a", 2, 0xF)]).stuck == {"a": 0xC}


def test_nothing_is_promised_while_the_default_group_lacks_ways_of_its_own() -> None:
    cache_ways = CACHE.without(0x7FE).with_company(0x700)
    budget = budget_for(cache_ways, [])
    assert budget.need == Need(2, 0) and budget.closed
    assert not budget.takes("a", 1) and budget.most("a") == 0


def test_a_frozen_cache_keeps_every_mask_in_its_place() -> None:
    budget = budget_for(CACHE.without(0x1), [WantedMask("a", 2, 0x3), WantedMask("b", 2, 0xC)], frozen=True)
    assert budget.stuck == {"a": 0x3, "b": 0xC} and budget.closed


def test_the_pool_grows_as_far_as_there_is_room_and_never_shrinks() -> None:
    budget = budget_for(CACHE, [WantedMask("a", 3, 0x7)])
    budget.raise_pool(6)
    assert budget.need == Need(6, 2) and budget.most("b") == 2
    budget.raise_pool(4)
    assert budget.need == Need(6, 2)
    budget.raise_pool(20)
    assert budget.need == Need(8, 2) and budget.most("b") == 0


def test_what_others_have_is_counted_without_the_vm_itself() -> None:
    budget = budget_for(CACHE.without(0x3), [WantedMask("a", 2, 0x3), WantedMask("b", 3, 0x1C)], frozen=True)
    assert budget.taken() == 5 and budget.taken("a") == 3 and budget.taken("b") == 2


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
        for size in range(max(most + 1, cache_ways.fewest), cache_ways.every.bit_length() + 1)
    )
    pool = largest_pool(cache_ways, lengths)
    assert not pool or fits(cache_ways, lengths, Need(pool, 0))
    assert not any(
        fits(cache_ways, lengths, Need(size, 0))
        for size in range(max(pool + 1, cache_ways.fewest), cache_ways.every.bit_length() + 1)
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
