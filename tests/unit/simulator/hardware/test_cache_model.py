# SPDX-License-Identifier: Apache-2.0
"""The model of a cache points the right way and holds no more than there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.simulator.hardware.cache_model import Demand, step
from vmqos.simulator.hardware.counters import Counter

WAYS, SIZE = 8, 8.0 * (1 << 20)
BIG = 1 << 30


def _run(demands: list[Demand], steps: int = 20) -> dict[int, Counter]:
    counters = {demand.rmid: Counter() for demand in demands}
    for _ in range(steps):
        step(counters, demands, WAYS, SIZE, 1.0)
    return counters


def test_ways_of_ones_own_are_kept_whatever_the_neighbour_does() -> None:
    held = _run([Demand(1, 0x0F, SIZE / 2, 1.0), Demand(2, 0xF0, BIG, 1.0)])[1].occupancy
    assert held == pytest.approx(SIZE / 2)


def test_a_neighbour_in_the_same_ways_takes_its_share() -> None:
    counters = _run([Demand(1, 0xFF, BIG, 1.0), Demand(2, 0xFF, BIG, 1.0)])
    assert counters[1].occupancy == pytest.approx(SIZE / 2)
    assert counters[2].occupancy == pytest.approx(SIZE / 2)


def test_fewer_ways_make_more_traffic() -> None:
    traffic = [_run([Demand(1, mask, SIZE, 1.0)])[1].total for mask in (0x01, 0x0F, 0xFF)]
    assert traffic[0] > traffic[1] > traffic[2]


def test_a_small_working_set_takes_only_what_it_needs() -> None:
    assert _run([Demand(1, 0xFF, 1 << 20, 1.0)])[1].occupancy == pytest.approx(1 << 20)


def test_throttling_makes_less_traffic() -> None:
    full, half = (_run([Demand(1, 0x01, BIG, 1.0, throttle)])[1].total for throttle in (1.0, 0.5))
    assert half == pytest.approx(full / 2, rel=0.01)


def test_a_limit_is_kept() -> None:
    counters = {1: Counter()}
    step(counters, [Demand(1, 0x01, BIG, 2.0, limit=1e6)], WAYS, SIZE, 2.0)
    assert counters[1].total == pytest.approx(2e6)


def test_an_idle_group_loses_its_lines() -> None:
    counters = {1: Counter(occupancy=SIZE)}
    for _ in range(60):
        step(counters, [], WAYS, SIZE, 1.0)
    assert counters[1].occupancy < SIZE / 1000


def test_lines_in_ways_that_were_taken_away_go_slowly() -> None:
    counters = {1: Counter(occupancy=SIZE)}
    step(counters, [Demand(1, 0x01, BIG, 1.0)], WAYS, SIZE, 1.0)
    assert SIZE / WAYS < counters[1].occupancy < SIZE


_DEMANDS = st.lists(
    st.builds(Demand, st.integers(1, 4), st.integers(0, 255), st.floats(0, 1e9), st.floats(0, 8), st.floats(0.1, 1)),
    max_size=4,
    unique_by=lambda demand: demand.rmid,
)


@given(st.lists(_DEMANDS, max_size=8), st.floats(0.01, 100))
def test_nobody_holds_more_than_there_is_and_traffic_only_grows(rounds: list[list[Demand]], elapsed: float) -> None:
    counters = {rmid: Counter() for rmid in range(1, 5)}
    for demands in rounds:
        before = {rmid: counter.total for rmid, counter in counters.items()}
        step(counters, demands, WAYS, SIZE, elapsed)
        assert sum(counter.occupancy for counter in counters.values()) <= SIZE * 1.0001
        assert all(counter.occupancy >= 0 and counter.total >= before[rmid] for rmid, counter in counters.items())
        assert all(counter.local <= counter.total for counter in counters.values())
