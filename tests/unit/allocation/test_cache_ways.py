# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.allocation.machines import machine
from vmqos.allocation.cache_ways import CacheWays, longest_run, run, runs, take, union
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.exceptions import IllegalBitmask

SETS = st.integers(0, (1 << 20) - 1)
CACHE = CacheWays(0x7FF, 0x7FF, 0, 0x1FF, 0x600, 2, False)
SPARSE = CacheWays(0x7FF, 0x7FF, 0, 0x1FF, 0x600, 2, True)


@given(SETS)
def test_the_runs_are_those_of_the_mask_value(ways: int) -> None:
    expected = CapacityBitmask(ways).runs()
    assert [run(*found) for found in runs(ways)] == [mask.bits for mask in expected]
    assert longest_run(ways) == max((mask.count for mask in expected), default=0)


@given(SETS, st.sampled_from([1, 2]), st.booleans())
def test_a_mask_is_legal_where_the_kernel_takes_it(ways: int, fewest: int, sparse: bool) -> None:
    l3 = machine(16, fewest=fewest, sparse=sparse).l3
    assert l3 is not None
    cache_ways = CacheWays(0xFFFF, 0xFFFF, 0, 0xFFFF, 0, fewest, sparse)
    taken = False
    with contextlib.suppress(IllegalBitmask):
        l3.check(CapacityBitmask(ways))
        taken = True
    assert cache_ways.legal(ways) == taken


@given(SETS, st.integers(0, 20))
def test_the_lowest_ways_are_taken(ways: int, size: int) -> None:
    assert CapacityBitmask(take(ways, size)).ways == CapacityBitmask(ways).ways[:size]


def test_the_union_of_nothing_is_nothing() -> None:
    assert union([]) == 0
    assert union([1, 2, 3]) == 3


@pytest.mark.parametrize(
    ("cache_ways", "ways", "size", "liked", "part"),
    [
        pytest.param(CACHE, 0x7FF, 3, (), 0x7, id="the lowest of equals"),
        pytest.param(CACHE, 0x7FF, 3, (0x1F0,), 0x70, id="what is liked"),
        pytest.param(CACHE, 0x7FF, 3, (0x600, 0x180), 0x700, id="the first wish before the second"),
        pytest.param(CACHE, 0x5, 2, (), 0, id="no gap"),
        pytest.param(CACHE, 0x7FF, 1, (), 0, id="no mask that is too short"),
        pytest.param(CACHE, 0x7, 4, (), 0, id="not more than there is"),
        pytest.param(SPARSE, 0x15, 2, (0x14,), 0x14, id="gaps where they are legal"),
        pytest.param(SPARSE, 0x15, 3, (0x14,), 0x15, id="what is not liked last"),
        pytest.param(SPARSE, 0xFF, 3, (0xF0, 0xC), 0x70, id="of what is liked the lowest"),
    ],
)
def test_the_best_part_is_legal_and_has_most_of_what_is_liked(
    cache_ways: CacheWays, ways: int, size: int, liked: tuple[int, ...], part: int
) -> None:
    assert cache_ways.best_part(ways, size, liked) == part


@pytest.mark.parametrize(
    ("cache_ways", "ways", "size"),
    [(CACHE, 0x77, 3), (CACHE, 0x55, 0), (SPARSE, 0x55, 4), (SPARSE, 1, 0), (CACHE, 0, 0)],
)
def test_the_largest_mask_is_legal(cache_ways: CacheWays, ways: int, size: int) -> None:
    assert cache_ways.largest(ways) == size


def test_company_is_for_the_default_group_alone() -> None:
    cache_ways = CACHE.without(0x3).with_company(0x7)
    assert (cache_ways.pool, cache_ways.company, cache_ways.exclusive) == (0x7FF, 0x3, 0x1FC)
    assert CACHE.with_company(0x3) == CACHE
    assert cache_ways.without(0x1) == CacheWays(0x7FF, 0x7FE, 0x2, 0x1FC, 0x600, 2, False)


def test_the_parts_of_a_set_are_its_legal_masks() -> None:
    assert list(CACHE.parts(0x77, 2)) == [0x3, 0x6, 0x30, 0x60]
    assert list(CACHE.parts(0x77, 1)) == list(CACHE.parts(0x7, 4)) == []
    assert list(SPARSE.parts(0x55, 3)) == [0x15], "one is as good as another"
