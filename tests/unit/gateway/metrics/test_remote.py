# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.gateway.metrics.remote."""

from tests.unit.gateway.answers import telemetry
from tests.unit.telemetry.values import snapshot, vm
from vmqos.gateway.metrics.remote import RemoteCounters
from vmqos.telemetry import Missing


def told(*vms):
    return telemetry(snapshot(*vms))["vms"]


def test_remote_is_what_is_not_local():
    assert RemoteCounters().update(told(vm((0, 100, 60), (0, 5, 5)))) == {
        ("u", "0"): 40,
        ("u", "1"): 0,
    }


def test_it_never_goes_back_though_the_two_counters_were_read_one_after_the_other():
    counters = RemoteCounters()
    counters.update(told(vm((0, 100, 60))))
    assert counters.update(told(vm((0, 200, 161)))) == {("u", "0"): 40}
    assert counters.update(told(vm((0, 300, 250)))) == {("u", "0"): 50}


def test_local_that_seems_to_be_the_greater_one_leaves_nothing_remote():
    assert RemoteCounters().update(told(vm((0, 100, 101)))) == {("u", "0"): 0}


def test_without_one_of_the_two_there_is_no_remote_and_what_was_there_is_not_forgotten():
    counters = RemoteCounters()
    counters.update(told(vm((0, 100, 60))))
    assert counters.update(told(vm((0, Missing.UNAVAILABLE, 70)))) == {}
    assert counters.update(told(vm((0, 110, Missing.ERROR)))) == {}
    assert counters.update(told(vm((0, 110, 71)))) == {("u", "0"): 40}


def test_each_cache_counts_for_itself():
    counters = RemoteCounters()
    counters.update(told(vm((0, 100, 60), (0, 100, 90))))
    assert counters.update(told(vm((0, 100, 61), (0, 110, 90)))) == {("u", "0"): 40, ("u", "1"): 20}


def test_a_group_that_was_made_anew_begins_anew():
    counters = RemoteCounters()
    counters.update(told(vm((0, 100, 60))))
    assert counters.update(told(vm((0, 5, 3), generation="2"))) == {("u", "0"): 2}


def test_counters_that_begin_anew_in_the_same_group_begin_anew_here_too():
    counters = RemoteCounters()
    counters.update(told(vm((0, 1000, 600))))
    assert counters.update(told(vm((0, 5, 3)))) == {("u", "0"): 2}, "not 400 until as much is moved again"
    assert counters.update(told(vm((0, 25, 13)))) == {("u", "0"): 12}


def test_a_vm_that_leaves_one_of_two_groups_goes_on():
    counters = RemoteCounters()
    counters.update(told(vm((0, 100, 60), generation="b+a")))
    assert counters.update(told(vm((0, 100, 61), generation="a"))) == {("u", "0"): 40}


def test_a_vm_that_is_gone_is_forgotten():
    counters = RemoteCounters()
    counters.update(told(vm((0, 100, 60))))
    assert counters.update(told()) == {}
    assert counters.update(told(vm((0, 10, 9)))) == {("u", "0"): 1}
