# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest

from vmqos.insight.model import Counts, Sample
from vmqos.insight.series import Rise, align, middle, rises


def test_vms_are_aligned_by_time_and_what_was_not_measured_is_not_a_number() -> None:
    times, series = align(
        {
            "a": [Sample(1.0, {0: 5.0}, 7.0, Counts(30, 10, 2, 1)), Sample(3.0, {0: 6.0}, None)],
            "b": [Sample(2.0, {0: 1.0, 1: 2.0}, 9.0), Sample(3.0, {0: 1.0, 1: 3.0}, 9.0)],
        }
    )
    assert times == [1.0, 2.0, 3.0]
    assert series["a"].bandwidth == pytest.approx([7.0, math.nan, math.nan], nan_ok=True)
    assert series["a"].cycles == pytest.approx([3.0, math.nan, math.nan], nan_ok=True)
    assert series["b"].bandwidth == [0.0, 9.0, 9.0]
    assert series["b"].held_on([0, 1]) == [0.0, 3.0, 4.0]
    assert series["b"].held_on([7]) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("counts", [Counts(0, 10, 2, 1), Counts(5e-324, 10, 2, 1), Counts(30, 0, 2, 1)])
def test_where_a_counter_stood_still_nothing_was_measured(counts: Counts) -> None:
    _, series = align({"a": [Sample(1.0, {0: 5.0}, 7.0, counts)]})
    ratios = [*series["a"].cycles, *series["a"].references, *series["a"].misses]
    assert all(map(math.isnan, ratios)) and series["a"].bandwidth == [7.0]


def test_the_middle_leaves_out_what_was_not_measured() -> None:
    assert middle([math.nan, 3.0, 1.0, 9.0]) == 3.0
    assert math.isnan(middle([math.nan]))


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ([1] * 8 + [4] * 8, [Rise(8, 16, 1, 4)]),
        ([1] * 8 + [4] * 6 + [1] * 4, [Rise(8, 14, 1, 4)]),
        ([1] * 8 + [4] * 6 + [1] * 6 + [4] * 6, [Rise(8, 14, 1, 4), Rise(20, 26, 1, 4)]),
        ([0] * 8 + [4] * 8, [Rise(8, 16, 0, 4)]),
        ([4] * 8 + [1] * 8, []),
        ([4] * 8 + [5] * 8, []),
        ([1] * 8 + [4] * 2 + [1] * 8, []),
        ([1] * 8 + [4] * 5 + [1] + [4] * 5, [Rise(8, 19, 1, 4)]),
        ([1] * 8 + [2] * 2 + [9] * 6, [Rise(10, 16, 1.5, 9)]),
        ([math.nan] * 3 + [1] * 8 + [4, math.nan] + [4] * 6, [Rise(11, 19, 1, 4)]),
        ([1] * 8 + [math.nan] + [4] * 8, []),
        ([], []),
    ],
)
def test_a_step_lasts_and_is_half_as_much_again(column: list[float], found: list[Rise]) -> None:
    assert rises(column) == found
