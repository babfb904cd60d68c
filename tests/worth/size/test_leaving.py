# SPDX-License-Identifier: Apache-2.0
"""A few VMs that leave ways behind, beside the truth; ``python -m tests.worth leaving`` tries more of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worth.experiments.leaving import figures
from tests.worth.sections.leaving import section, told
from tests.worth.sections.size import POINTS
from tests.worth.size.leaving import LAST, NEIGHBOURS, PLACES, loads, tried, truth, worst

SEED = 7
NONE, CLASS = PLACES.values()
STREAMS = NEIGHBOURS["streams"]


def test_loads_are_the_same_each_time() -> None:
    assert loads(SEED) == loads(SEED) != loads(SEED + 1)
    assert len(loads(SEED)) == 7


def test_what_a_vm_uses_often_stays_however_long_one_waits_and_nothing_is_told_then() -> None:
    walker = loads(SEED)["walker, small"]
    true = truth(walker, STREAMS, SEED, NONE.first)
    late = tried(walker, STREAMS, SEED, NONE, lambda left, fits: False)
    assert late.turns > 10 and late.left > 0.9 and worst(late.points, true) > 0.5
    by_law = tried(walker, STREAMS, SEED, NONE)
    assert not by_law.trusted
    assert by_law.waited < late.waited


def test_what_a_vm_uses_seldom_is_gone_after_a_turn_and_all_counts() -> None:
    stream = loads(SEED)["stream"]
    by_law = tried(stream, STREAMS, SEED, NONE)
    assert by_law.left < 0.1 and by_law.trusted == by_law.points
    assert worst(by_law.points, truth(stream, STREAMS, SEED, NONE.first)) <= POINTS


def test_of_a_vm_that_lives_on_what_it_left_the_first_ways_do_not_count_and_the_others_are_right() -> None:
    store = loads(SEED)["key-value store, small"]
    by_law = tried(store, STREAMS, SEED, NONE)
    true = truth(store, STREAMS, SEED, NONE.first)
    assert by_law.points[0] not in by_law.trusted and by_law.points[-1] in by_law.trusted
    assert worst(by_law.trusted, true) <= POINTS < worst(by_law.points, true)


def test_a_vm_of_a_class_is_tried_from_the_ways_of_its_class_on() -> None:
    found = figures(loads(SEED)["walker, middle"], STREAMS, SEED, CLASS)
    said = told(found)
    assert found["first"] == CLASS.first and len(found["missed"].split()) == LAST - CLASS.first + 1
    assert said["worst"] <= POINTS and abs(said["knee"] - said["true knee"]) <= 1


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({}, [True, True, True]),
        ({"late": 0.01}, [False, True, True]),
        ({"true": "0.9 0.4 0.0 0.0"}, [True, False, True]),
        ({"true": "0.9 0.5 0.5 0.5", "missed": "0.9 0.5 0.0 0.0"}, [True, False, True]),
        ({"true": "0.9 0.0 0.0 0.0", "missed": "0.9 0.9 0.9 0.0"}, [True, False, False]),
        ({"still": "0.5 0.5 0.5 0.2"}, [True, False, False]),
    ],
)
def test_what_a_broken_law_says_does_not_hold(changes: dict[str, Any], held: list[bool]) -> None:
    good: dict[str, Any] = {"at once": 0.9, "late": 0.9, "left": 1.0, "turns": 9.0, "waited": 5, "first": 3}
    good |= {"missed": "0.9 0.5 0.0 0.0", "true": "0.9 0.5 0.0 0.0", "still": "0.0 0.0 0.0 0.0"}
    found = {"promised none": {"streams": {"walker, small": [good | changes]}}}
    assert [claim.holds for claim in section(found).claims] == held


def test_ways_with_which_much_is_left_do_not_count() -> None:
    one = {"first": 3, "missed": "0.0 0.5 0.0", "true": "0.9 0.5 0.0", "still": "0.5 0.1 0.0"}
    assert told(one) == {"worst": 0.0, "knee": 5, "true knee": 5}
