# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.agent.remember.promise_time import PromiseTime
from vmqos.allocation import PromiseState

KEPT, PENDING, DEGRADED, NONE = PromiseState.KEPT, PromiseState.PENDING, PromiseState.DEGRADED, PromiseState.NONE


def told(story: list[tuple[float, PromiseState]], until: float) -> tuple[int, float, float]:
    (began, first), *later = story
    time = PromiseTime(first, began)
    for moment, state in later:
        time = time.judged(state, moment)
    return time.changes, time.promised_until(until), time.kept_until(until)


@pytest.mark.parametrize(
    ("story", "counted"),
    [
        ([(100.0, KEPT)], (0, 50.0, 50.0)),
        ([(100.0, PENDING)], (0, 50.0, 0.0)),
        ([(100.0, NONE)], (0, 0.0, 0.0)),
        ([(100.0, PENDING), (110.0, KEPT)], (1, 50.0, 40.0)),
        ([(100.0, KEPT), (110.0, KEPT), (120.0, KEPT)], (0, 50.0, 50.0)),
        ([(100.0, KEPT), (110.0, DEGRADED), (125.0, PENDING), (130.0, KEPT)], (3, 50.0, 30.0)),
        ([(100.0, NONE), (110.0, KEPT), (120.0, NONE)], (2, 10.0, 10.0)),
    ],
)
def test_the_time_under_a_promise_and_the_time_for_which_it_was_kept_add_up(
    story: list[tuple[float, PromiseState]], counted: tuple[int, float, float]
) -> None:
    assert told(story, 150.0) == counted


def test_a_judgement_that_changes_nothing_leaves_the_value_as_it_is() -> None:
    time = PromiseTime(KEPT, 100.0)
    assert time.judged(KEPT, 200.0) is time
