# SPDX-License-Identifier: Apache-2.0
"""What tests in guests take for a good estimate of counters that take turns."""

from __future__ import annotations

import pytest

from tests.kernel.pmu.turns import TRIES, Estimate, hold

TRUTH = 1000.0
RIGHT = [Estimate(TRUTH, 0.2)] * 5
WAITED = [Estimate(TRUTH * factor, 0.2) for factor in (0.7, 1.3, 1.0, 1.0, 1.0)]
"""The guest had to wait in the turn of one, and not in that of another."""


def test_estimates_that_are_right_at_last_are_good() -> None:
    found = iter([WAITED, WAITED, RIGHT])
    hold(lambda: next(found), TRUTH)
    assert next(found, None) is None


def test_one_that_is_wrong_each_time_is_told() -> None:
    tries = list[int]()

    def count() -> list[Estimate]:
        tries.append(1)
        return WAITED

    with pytest.raises(pytest.fail.Exception, match="in none of 8 tries"):
        hold(count, TRUTH)
    assert len(tries) == TRIES


def test_what_was_not_scaled_to_all_the_time_is_told_at_once() -> None:
    found = iter([[Estimate(TRUTH * 0.2, 0.2)] * 5, RIGHT])
    with pytest.raises(AssertionError):
        hold(lambda: next(found), TRUTH)
