# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from vmqos.gateway.metrics.rising import RisingCounters


def test_a_counter_is_held_at_the_most_that_it_was() -> None:
    rising = RisingCounters()
    assert [rising.update({("a",): value})["a",] for value in (5.0, 3.0, 5.5, 5.0)] == [5.0, 5.0, 5.5, 5.5]


def test_a_counter_without_a_number_is_absent_and_remembered() -> None:
    rising = RisingCounters()
    rising.update({("a",): 5.0})
    assert rising.update({("a",): None}) == {}
    assert rising.update({("a",): 4.0}) == {("a",): 5.0}


def test_a_counter_that_is_gone_is_forgotten_and_another_one_is_its_own() -> None:
    rising = RisingCounters()
    rising.update({("a", "1"): 5.0})
    assert rising.update({("a", "2"): 1.0}) == {("a", "2"): 1.0}
    assert rising.update({("a", "1"): 2.0}) == {("a", "1"): 2.0}


def test_a_counter_that_begins_at_0_tells_what_it_grew_since_it_was_first_seen() -> None:
    rising = RisingCounters(from_zero=True)
    assert rising.update({("a",): None}) == {}
    assert [rising.update({("a",): value}).get(("a",)) for value in (500.0, 503.0, None, 501.0)] == [0, 3, None, 3]
    assert rising.update({("b",): 7.0}) == {("b",): 0}
    assert rising.update({("a",): 600.0}) == {("a",): 0}
