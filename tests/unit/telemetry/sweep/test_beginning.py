# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.sweep.beginning."""

from vmqos.telemetry import Missing
from vmqos.telemetry.sweep.beginning import Beginning


def test_what_was_counted_before_is_taken_away_and_all_else_stays():
    beginning = Beginning()
    beginning.see([7, 100, 5.5], [1, 2])
    assert beginning.after([8, 130, 7.0]) == [8, 30, 1.5]
    assert beginning.since is not None


def test_only_the_first_number_counts_as_the_beginning():
    beginning = Beginning()
    for counted in (Missing.ERROR, 100, 200):
        beginning.see([counted], [0])
    assert beginning.after([250]) == [150]


def test_what_is_unavailable_began_at_0():
    beginning = Beginning()
    beginning.see([Missing.UNAVAILABLE], [0])
    assert beginning.after([Missing.UNAVAILABLE]) == [Missing.UNAVAILABLE]
    assert beginning.after([40]) == [40]


def test_before_anything_was_read_nothing_is_taken_away():
    beginning = Beginning()
    beginning.see([Missing.ERROR, 3], [0])
    assert beginning.since is None
    assert beginning.after([9, 3]) == [9, 3]
