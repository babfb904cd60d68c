# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.bandwidth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.telemetry import values
from tests.unit.telemetry.values import snapshot
from vmqos.telemetry import Missing, Reading, rates
from vmqos.telemetry.bandwidth import rate


def vm(read_at, *caches, **fields):
    """Each cache counts (total, local)."""
    return values.vm(*((0, *cache) for cache in caches), read_at=read_at, **fields)


def test_a_rate_is_the_growth_of_all_caches_over_the_time_between_the_readings():
    found = rate(vm(10.0, (100, 60), (0, 0)), vm(12.0, (300, 100), (10, 4)))
    assert (found.total, found.local, found.remote) == (Reading(105.0), Reading(22.0), Reading(83.0))
    assert found.seconds == 2.0


def test_a_vm_that_was_not_there_before_has_no_rate_yet():
    found = rate(None, vm(12.0, (300, 100)))
    assert found.total == found.local == found.remote == Reading(None, Missing.NO_PREVIOUS)
    assert found.seconds == 0.0


def test_no_rate_is_taken_across_two_generations():
    found = rate(vm(10.0, (100, 60)), vm(12.0, (300, 100), generation="2"))
    assert found.total == Reading(None, Missing.NO_PREVIOUS)


def test_a_counter_that_went_back_is_no_rate_though_another_one_grew_more():
    found = rate(vm(10.0, (100, 60), (100, 60)), vm(12.0, (90, 70), (300, 70)))
    assert found.total == Reading(None, Missing.WENT_BACK)
    assert found.local == Reading(10.0)
    assert found.remote == Reading(None, Missing.WENT_BACK)


@pytest.mark.parametrize("missing", [Missing.UNAVAILABLE, Missing.ERROR, Missing.UNASSIGNED])
def test_a_counter_without_a_number_is_no_rate_in_either_interval(missing):
    numbers, text = (100, 60), (missing, 60)
    during = rate(vm(10.0, numbers), vm(11.0, text))
    after = rate(vm(11.0, text), vm(12.0, numbers))
    assert during.total == Reading(None, missing)
    assert after.total == Reading(None, Missing.NO_PREVIOUS)
    assert during.local == after.local == Reading(0.0)
    assert during.remote == Reading(None, missing)


def test_a_cache_that_has_come_online_since_leaves_no_rate():
    found = rate(vm(10.0, (100, 60)), vm(12.0, (110, 70), (5000, 4000)))
    assert found.total == Reading(None, Missing.NO_PREVIOUS)


def test_remote_is_never_negative_though_local_was_read_a_moment_later():
    assert rate(vm(10.0, (0, 0)), vm(11.0, (100, 101))).remote == Reading(0.0)


def test_a_clock_that_stands_still_makes_no_rate():
    assert rate(vm(10.0, (0, 0)), vm(10.0, (100, 100))).total == Reading(None, Missing.NO_PREVIOUS)


def test_every_vm_of_the_later_sweep_has_its_rates_and_no_other():
    before = snapshot(vm(10.0, (1, 1)), vm(10.0, (1, 1), uuid="gone"))
    after = snapshot(vm(11.0, (3, 1)), vm(11.0, (3, 1), uuid="new"), monotonic=11.0)
    found = rates(before, after)
    assert found["u"].total == Reading(2.0)
    assert found["new"].total == Reading(None, Missing.NO_PREVIOUS)
    assert found.keys() == {"u", "new"}


value = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([Missing.UNAVAILABLE, Missing.ERROR]))
caches = st.lists(st.tuples(value, value), min_size=1, max_size=3)


@given(caches, caches, st.floats(0.001, 1e6), st.sampled_from(["1", "2"]))
def test_a_rate_is_a_finite_number_of_0_or_more_or_a_reason_and_never_both(then, now, seconds, generation):
    found = rate(vm(10.0, *then), vm(10.0 + seconds, *now, generation=generation))
    for reading in (found.total, found.local, found.remote):
        assert (reading.value is None) != (reading.missing is None)
        assert reading.value is None or 0 <= reading.value <= 3 * 2**64 / seconds * 1.001


def test_each_cache_s_rate_is_taken_between_its_own_moments():
    before = vm(10.0, (1000, 0), (5000, 0), moments={0: 10.0, 1: 10.5})
    after = vm(12.0, (2000, 0), (8000, 0), moments={0: 12.0, 1: 12.0})
    assert rate(before, after).total == Reading(1000 / 2.0 + 3000 / 1.5)


def packages(cycles, *others, event="unhalted_core_cycles"):
    """What each package counts, all of the same event."""
    return {number: {event: Reading.of(value)} for number, value in enumerate((cycles, *others))}


def test_what_packages_count_is_told_a_second_for_all_of_them_together():
    found = rate(vm(10.0, (0, 0), packages=packages(100, 5)), vm(12.0, (0, 0), packages=packages(500, 7)))
    assert found.packages == {"unhalted_core_cycles": Reading(201.0)}
    assert rate(None, vm(12.0, (0, 0), packages=packages(1))).packages == {
        "unhalted_core_cycles": Reading.none(Missing.NO_PREVIOUS)
    }


def test_a_package_that_has_not_heard_of_a_vm_has_counted_nothing_for_it():
    before = vm(10.0, (0, 0), packages=packages(Missing.UNAVAILABLE, 5))
    after = vm(12.0, (0, 0), packages=packages(40, 7))
    assert rate(before, after).packages == {"unhalted_core_cycles": Reading(21.0)}


@pytest.mark.parametrize(
    ("then", "now", "missing"),
    [
        (40, 30, Missing.WENT_BACK),
        (Missing.ERROR, 30, Missing.NO_PREVIOUS),
        (40, Missing.ERROR, Missing.ERROR),
    ],
)
def test_what_packages_count_has_no_rate_without_two_numbers_that_grew(then, now, missing):
    found = rate(vm(10.0, (0, 0), packages=packages(then)), vm(12.0, (0, 0), packages=packages(now)))
    assert found.packages == {"unhalted_core_cycles": Reading.none(missing)}


def test_a_turn_without_counters_that_may_have_passed_unseen_makes_no_bandwidth():
    waiting = vm(10.0, (Missing.UNASSIGNED, Missing.UNASSIGNED), uuid="waiting")
    before = snapshot(vm(10.0, (100, 60)), waiting, monotonic=10.0)
    after = snapshot(vm(20.0, (300, 100)), waiting, monotonic=20.0)
    assert rates(before, after)["u"].total == rates(before, after)["u"].local == Reading(None, Missing.UNASSIGNED)
    assert rates(before, after, unseen=10.0)["u"].total == Reading(20.0)


def test_where_every_vm_has_counters_a_bandwidth_is_told_over_any_time():
    before, after = snapshot(vm(10.0, (100, 60))), snapshot(vm(310.0, (700, 100)), monotonic=310.0)
    assert rates(before, after)["u"].total == Reading(2.0)
