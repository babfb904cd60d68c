# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.sweep.carried."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vmqos.resctrl.monitoring import Missing, Value
from vmqos.telemetry.sweep.carried import NOTHING, add, begin, carry, more

COUNTER = [0]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=1, max_size=40))
def test_the_bytes_told_are_those_that_were_counted_whoever_had_the_counter_when(
    sweeps: list[tuple[bool, int]],
) -> None:
    """In each sweep, the VM has a counter or not, and has moved so many bytes since the one before."""
    value: Value = 0
    before, carried, counted = [value], NOTHING, 0
    for has_counter, moved in sweeps:
        if not has_counter:
            value = Missing.UNASSIGNED
        elif isinstance(value, Missing):
            # The new counter begins at 0 some time after the sweep before.
            value = moved
            counted += moved
        else:
            value += moved
            counted += moved
        carried = carry(carried, before, [value], COUNTER)
        assert add([value], carried) == [Missing.UNASSIGNED if isinstance(value, Missing) else counted]
        before = [value]


def test_a_turn_that_passed_between_two_sweeps_is_seen_where_the_counter_is_less_than_it_was() -> None:
    carried = carry(NOTHING, [100], [Missing.UNASSIGNED], COUNTER)
    carried = carry(carried, [Missing.UNASSIGNED], [50], COUNTER)
    assert add([50], carried) == [150]
    carried = carry(carried, [50], [7], COUNTER)
    assert add([7], carried) == [157]


def test_a_counter_that_goes_back_without_turns_is_told_as_it_is() -> None:
    assert carry(NOTHING, [100], [7], COUNTER) is NOTHING
    assert add([7], NOTHING) == [7]


def test_a_sweeper_that_begins_among_turns_tells_bytes_from_then_on() -> None:
    carried = begin([100, Missing.UNASSIGNED, 4096], [0, 1])
    assert add([100, Missing.UNASSIGNED, 4096], carried) == [0, Missing.UNASSIGNED, 4096]
    assert add([130, 7, 4096], carried) == [30, 7, 4096]


def test_what_a_vm_loses_is_carried_to_the_group_that_it_is_in() -> None:
    assert more({0: 5}, {}, {0: 100, 1: 7}) == {0: 105, 1: 7}
    assert more({0: 105}, {0: 100}, {0: 130}) == {0: 135}


def test_only_the_traffic_is_carried() -> None:
    unassigned = Missing.UNASSIGNED
    assert carry(NOTHING, [4096, 100], [4096, unassigned], [1]) == {1: 100}
    assert add([4096, unassigned], {1: 100}) == [4096, unassigned]
