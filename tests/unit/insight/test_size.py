# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from vmqos.insight.model import Counts, Sample
from vmqos.insight.size import ENOUGH, FEWEST, MOST, Point, is_enough, knee, point, size


def samples(held: Sequence[float], missed: Sequence[float] = (), traffic: Sequence[float] = ()) -> list[Sample]:
    """One sample a second; without ``missed`` there is no PMU, without ``traffic`` none of it is counted."""
    return [
        Sample(
            float(at),
            {0: now / 2, 1: now / 2},
            traffic[at] if traffic else None,
            Counts(2000.0, 1000.0, 100.0, 100.0 * missed[at]) if missed else None,
        )
        for at, now in enumerate(held)
    ]


def at(ways: int, missed: float, *, traffic: float = 1.0, cycles: float = 2.0, work: float = 0.1) -> Point:
    return Point(ways, missed, traffic, cycles, work, 100.0)


@pytest.mark.parametrize(
    ("watched", "enough"),
    [
        ([], False),
        (samples([100] * FEWEST, [0.5] * FEWEST), False),
        (samples([100] * (FEWEST + 1), [0.5] * (FEWEST + 1)), True),
        (samples([100 * 1.1**at for at in range(20)], [0.5] * 20), False),
        (samples([*(100 * 1.1**at for at in range(20)), *[700] * 8], [0.9] * 20 + [0.5] * 8), True),
        (samples([100] * 20, [0.1, 0.9] * 10), False),
        (samples([100] * MOST, [0.1, 0.9] * (MOST // 2)), True),
        (samples([100 * 1.1**at for at in range(MOST)], [0.5] * MOST), True),
        (samples([100] * 20, traffic=[1e6] * 20), True),
        (samples([100] * 20, traffic=[1e6, 2e6] * 10), False),
        (samples([100] * 20), True),
    ],
    ids=[
        "nothing yet",
        "no sample to compare the last with",
        "it holds as much as before",
        "it still fills its way",
        "it has filled its way",
        "what it misses is not known closely",
        "that will not be known more closely",
        "it fills its way for ever",
        "its traffic is steady",
        "its traffic is not steady",
        "nothing is counted",
    ],
)
def test_a_vm_is_watched_until_it_has_settled_and_its_misses_are_known(watched: list[Sample], enough: bool) -> None:
    assert is_enough(watched) is enough


def test_what_is_missed_while_a_way_fills_does_not_count() -> None:
    held = [*(100 * 1.1**at for at in range(10)), *[250] * 10]
    found = point(3, samples(held, [0.9] * 10 + [0.2] * 10, [9e6] * 10 + [2e6] * 10))
    assert found.ways == 3
    assert found.missed == pytest.approx(0.2)
    assert found.traffic == 2e6
    assert (found.cycles, found.work, found.held) == (2.0, 0.1, 250.0)


def test_seconds_in_which_a_vm_asked_more_weigh_more() -> None:
    counts = [Counts(10, 10, 100, 50), Counts(10, 10, 300, 30)] * 3
    found = point(2, [Sample(float(at), {0: 1.0}, None, one) for at, one in enumerate(counts[:4])])
    assert found.missed == pytest.approx(160 / 800)


def test_where_nothing_is_counted_there_is_no_number() -> None:
    found = point(2, samples([100] * 8))
    assert all(math.isnan(value) for value in (found.missed, found.traffic, found.cycles, found.work))


def test_the_curve_is_the_nearest_one_that_never_rises() -> None:
    found = size([at(2, 0.9), at(5, 0.5), at(3, 0.6), at(4, 0.7), at(6, 0.5)])
    assert found.curve == pytest.approx({2: 0.9, 3: 0.65, 4: 0.65, 5: 0.5, 6: 0.5})
    assert found.knee == 5
    assert found.is_counted and found.is_steady


def test_work_takes_longer_with_fewer_ways() -> None:
    found = size([at(2, 0.9, cycles=6.0), at(3, 0.5, cycles=3.0), at(4, 0.1, cycles=2.0)])
    assert found.slower == pytest.approx({2: 3.0, 3: 1.5, 4: 1.0})


def test_without_a_pmu_the_traffic_is_the_curve() -> None:
    found = size([at(2, math.nan, traffic=8e6), at(3, math.nan, traffic=2e6), at(4, math.nan, traffic=2e6)])
    assert found.curve == pytest.approx({2: 1.0, 3: 0.25, 4: 0.25})
    assert found.knee == 3
    assert not found.is_counted and not found.slower


def test_a_vm_without_traffic_needs_no_further_way() -> None:
    assert size([at(2, math.nan, traffic=0.0), at(3, math.nan, traffic=0.0)]).knee == 2


@pytest.mark.parametrize(("work", "steady"), [(0.1, True), (0.105, True), (0.12, False), (0.08, False)])
def test_a_vm_whose_work_changed_is_not_steady(work: float, steady: bool) -> None:
    assert size([at(2, 0.9), at(3, 0.5, work=work), at(4, 0.1)]).is_steady is steady


@pytest.mark.parametrize(
    ("curve", "ways"),
    [
        ({2: 0.5}, 2),
        ({2: 0.9, 3: 0.5, 4: 0.1, 5: 0.1}, 4),
        ({2: 0.9, 3: 0.1 + 0.9 * ENOUGH, 4: 0.1}, 3),
        ({2: 0.9, 3: 0.1 + 1.1 * ENOUGH, 4: 0.1}, 4),
        ({2: 0.9, 3: 0.9, 4: 0.9}, 2),
        ({4: 0.0, 3: 0.5, 2: 0.9}, 4),
    ],
)
def test_the_knee_is_the_fewest_ways_that_are_nearly_as_good_as_all(curve: Mapping[int, float], ways: int) -> None:
    assert knee(curve) == ways


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (at(3, math.inf), "missed with 3 ways is inf"),
        (at(3, 0.5, cycles=math.nan), "cycles with 3 ways is nan"),
        (at(3, 0.5, work=-math.inf), "work with 3 ways is -inf"),
        (at(3, math.nan, traffic=math.nan), "traffic with 3 ways is nan"),
        (at(3, math.nan, traffic=math.inf), "traffic with 3 ways is inf"),
    ],
)
def test_a_figure_that_is_no_number_is_refused_by_its_name(wrong: Point, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        size([at(2, 0.9), wrong, at(4, 0.1)])


@pytest.mark.parametrize(
    ("points", "is_least"),
    [
        ([at(2, 0.9), at(3, 0.5), at(4, 0.2)], True),
        ([at(2, 0.9), at(3, 0.2), at(4, 0.18)], False),
        ([at(2, 0.9), at(3, ENOUGH)], False),
        ([at(2, 0.9)], False),
        ([at(2, math.nan, traffic=9e6), at(3, math.nan, traffic=1e5)], True),
    ],
    ids=["the last way spared it much", "it spared it little", "nothing is left", "none was tried", "a guess"],
)
def test_a_vm_may_need_more_if_the_last_way_still_spared_it_much(points: list[Point], is_least: bool) -> None:
    assert size(points).is_least is is_least
