# SPDX-License-Identifier: Apache-2.0
"""A few loads beside the truth, and the judge itself; ``python -m tests.worth size`` tries hundreds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.worth.experiments.size import figures
from tests.worth.sections.size import POINTS, section
from tests.worth.size.loads import KINDS, WAYS, draw
from tests.worth.size.stepping import BASE, OTHERS, Sized, sized

SEED = 7


@pytest.fixture(scope="module")
def walker() -> Sized:
    """A load that starves with what it was promised, and fits before it has all ways."""
    return sized(draw(SEED)["walker, middle"], SEED)


def test_loads_are_the_same_each_time_and_another_seed_makes_others() -> None:
    assert draw(5) == draw(5) != draw(6)
    assert set(draw(5)) == set(KINDS)


def test_a_walker_misses_all_until_it_fits_and_its_knee_is_there(walker: Sized) -> None:
    assert walker.worst <= 0.02
    assert BASE < walker.found.knee < WAYS - OTHERS
    assert abs(walker.found.knee - walker.knee) <= 1
    assert walker.found.curve[BASE] > 0.9 and walker.found.curve[WAYS - OTHERS] < 0.1
    assert walker.found.slower[BASE] > 1.5 and walker.found.slower[WAYS - OTHERS] == 1.0
    assert walker.found.is_counted and walker.found.is_steady
    assert walker.cost < 0.01


def test_ways_spare_a_stream_nothing() -> None:
    stream = sized(draw(SEED)["stream"], SEED)
    assert stream.worst <= 0.02
    assert stream.found.knee == stream.knee == BASE


def test_traffic_says_where_a_walker_fits_too() -> None:
    walker = sized(draw(SEED)["walker, small"], SEED, counted=False)
    assert not walker.found.is_counted and not walker.found.slower
    assert abs(walker.found.knee - walker.knee) <= 1


def test_what_a_broken_law_says_does_not_hold(walker: Sized) -> None:
    curve = {ways: max(0.0, missed - 2 * POINTS) for ways, missed in walker.found.curve.items()}
    far = replace(walker, found=replace(walker.found, curve=curve))
    late = replace(walker, found=replace(walker.found, knee=walker.knee + 2))
    dear = replace(walker, cost=0.02)
    assert far.worst > POINTS
    assert [_held(one) for one in (walker, far, late, dear)] == [
        [True, True, True, True],
        [False, True, True, True],
        [True, False, False, True],
        [True, True, True, False],
    ]


def _held(one: Sized) -> list[bool]:
    found = {"walker, middle": {"pmu": [figures(one)], "no pmu": [figures(one)]}}
    return [claim.holds for claim in section(found).claims]
