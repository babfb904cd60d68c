# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.allocation import every_place
from tests.unit.allocation.test_packing import lines, needs
from vmqos.allocation.fitting import fits, largest_newcomer, largest_pool, unpromised
from vmqos.allocation.line import Line, Need

LENGTHS = st.lists(st.integers(1, 4), max_size=4)
LINE = Line(0x7FF, 0x7FF, 0, 0x1FF, 0x600, 1, False)


@given(lines(), LENGTHS, needs())
def test_what_fits_is_what_somebody_who_tries_everything_finds(line: Line, lengths: list[int], need: Need) -> None:
    assert fits(line, lengths, need) == every_place.fits(line, lengths, need)


@given(lines(sparse=True), LENGTHS, needs())
def test_where_masks_may_have_gaps_numbers_decide(line: Line, lengths: list[int], need: Need) -> None:
    assert fits(line, lengths, need) == every_place.fits(line, lengths, need)


@given(lines(), LENGTHS, needs(), st.integers(1, 4))
def test_who_does_not_fit_does_not_fit_when_others_came(line: Line, lengths: list[int], need: Need, more: int) -> None:
    if fits(line, [*lengths, more], need):
        assert fits(line, lengths, need)


@given(st.booleans().flatmap(lambda sparse: lines(sparse=sparse)), LENGTHS, needs())
def test_the_largest_that_fits_fits_and_no_larger_one(line: Line, lengths: list[int], need: Need) -> None:
    most = largest_newcomer(line, lengths, need)
    assert not most or fits(line, [*lengths, most], need)
    assert not any(fits(line, [*lengths, size], need) for size in range(max(most + 1, line.fewest), line.width + 1))
    pool = largest_pool(line, lengths)
    assert not pool or fits(line, lengths, Need(pool, 0))
    assert not any(fits(line, lengths, Need(size, 0)) for size in range(max(pool + 1, line.fewest), line.width + 1))


@given(st.booleans().flatmap(lambda sparse: lines(sparse=sparse)), LENGTHS, needs())
def test_all_unpromised_ways_can_be_promised_one_by_one(line: Line, lengths: list[int], need: Need) -> None:
    left = unpromised(line, lengths, need)
    assert fits(line, [*lengths, *[1] * left], need) or not left
    assert not fits(line, [*lengths, *[1] * (left + 1)], need)


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
    assert largest_newcomer(LINE, lengths, need) == expected
