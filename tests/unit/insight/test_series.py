# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


SAMPLES = st.builds(
    Sample,
    st.integers(0, 9).map(float),
    st.dictionaries(st.integers(0, 2), st.floats(0, 1e9), max_size=3),
    st.none() | st.floats(0, 1e9),
    st.none() | st.builds(Counts, *[st.sampled_from([0.0, 5e-324, 3.0, 7e9])] * 4),
)


@given(st.dictionaries(st.sampled_from("abc"), st.lists(SAMPLES, max_size=8)))
def test_each_column_has_the_vms_own_value_at_each_time(history: dict[str, list[Sample]]) -> None:
    times, series = align(history)
    assert times == sorted({sample.time for samples in history.values() for sample in samples})
    assert list(series) == [vm for vm, samples in history.items() if samples]
    for vm, of in series.items():
        at = {sample.time: sample for sample in history[vm]}
        assert of.held.keys() == {cache for sample in history[vm] for cache in sample.occupancy}
        for place, time in enumerate(times):
            sample, absent = at.get(time), 0.0 if time < history[vm][0].time else math.nan
            held = {cache: column[place] for cache, column in of.held.items()}
            ratios = [column[place] for column in (of.cycles, of.references, of.misses)]
            if sample is None:
                assert [*held.values(), of.bandwidth[place]] == pytest.approx([absent] * (1 + len(held)), nan_ok=True)
                assert all(map(math.isnan, ratios))
                continue
            moved = math.nan if sample.bandwidth is None else sample.bandwidth
            assert of.bandwidth[place] == pytest.approx(moved, abs=0, nan_ok=True)
            for cache, value in held.items():
                assert value == pytest.approx(sample.occupancy.get(cache, math.nan), abs=0, nan_ok=True)
            counts = sample.counts
            if counts is not None and counts.instructions > 0 and counts.cycles / counts.instructions > 0:
                done = [counts.cycles, counts.references, counts.misses]
                assert ratios == pytest.approx([one / counts.instructions for one in done], abs=0)
            else:
                assert all(map(math.isnan, ratios))


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
