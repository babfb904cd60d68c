# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.gateway.remote."""

from tests.unit.telemetry.values import snapshot, vm
from vmqos.gateway.remote import RemoteCounters
from vmqos.telemetry import Missing, Reading


def test_remote_is_what_is_not_local():
    assert RemoteCounters().update(snapshot(vm((0, 100, 60), (0, 5, 5)))) == {
        ("u", 0): Reading(40),
        ("u", 1): Reading(0),
    }


def test_it_never_goes_back_though_the_two_counters_were_read_one_after_the_other():
    counters = RemoteCounters()
    counters.update(snapshot(vm((0, 100, 60))))
    assert counters.update(snapshot(vm((0, 200, 161)))) == {("u", 0): Reading(40)}
    assert counters.update(snapshot(vm((0, 300, 250)))) == {("u", 0): Reading(50)}


def test_local_that_seems_to_be_the_greater_one_leaves_nothing_remote():
    assert RemoteCounters().update(snapshot(vm((0, 100, 101)))) == {("u", 0): Reading(0)}


def test_without_one_of_the_two_there_is_no_remote_and_what_was_there_is_not_forgotten():
    counters = RemoteCounters()
    counters.update(snapshot(vm((0, 100, 60))))
    assert counters.update(snapshot(vm((0, Missing.UNAVAILABLE, 70)))) == {("u", 0): Reading(None, Missing.UNAVAILABLE)}
    assert counters.update(snapshot(vm((0, 110, Missing.ERROR)))) == {("u", 0): Reading(None, Missing.ERROR)}
    assert counters.update(snapshot(vm((0, 110, 71)))) == {("u", 0): Reading(40)}


def test_a_group_that_was_made_anew_begins_anew():
    counters = RemoteCounters()
    counters.update(snapshot(vm((0, 100, 60))))
    assert counters.update(snapshot(vm((0, 5, 3), generation="2"))) == {("u", 0): Reading(2)}


def test_a_vm_that_is_gone_is_forgotten():
    counters = RemoteCounters()
    counters.update(snapshot(vm((0, 100, 60))))
    assert counters.update(snapshot()) == {}
    assert counters.update(snapshot(vm((0, 10, 9)))) == {("u", 0): Reading(1)}
