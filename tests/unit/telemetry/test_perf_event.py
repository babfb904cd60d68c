# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno

import pytest

from tests.unit.telemetry import fake_perf
from tests.unit.telemetry.fake_perf import INHERIT, INHERIT_THREAD, FakePerf
from vmqos.telemetry.perf_event import Growth, TaskCounters

EVENTS = ((0, 0), (0, 1))


@pytest.fixture
def perf(monkeypatch: pytest.MonkeyPatch) -> FakePerf:
    return fake_perf.put_in_place(monkeypatch)


def test_a_task_is_counted_from_its_opening_on(perf: FakePerf) -> None:
    perf.says[7] = (100, 100, 1000, 500)
    counted = TaskCounters(7, EVENTS)
    perf.says[7] = (150, 150, 1600, 800)
    assert counted.grown() == Growth(50, 50, (600, 300))
    assert counted.grown() == Growth(0, 0, (0, 0))


def test_what_others_took_the_counters_for_is_made_up_for(perf: FakePerf) -> None:
    counted = TaskCounters(7, EVENTS)
    perf.says[7] = (100, 25, 1000, 500)
    assert counted.grown() == Growth(100, 25, (4000, 2000))
    # Only what came since is scaled, so a count never falls.
    perf.says[7] = (200, 125, 2000, 1000)
    assert counted.grown() == Growth(100, 100, (1000, 500))


def test_a_time_without_any_counter_is_made_up_for_when_there_is_one(perf: FakePerf) -> None:
    counted = TaskCounters(7, EVENTS)
    perf.says[7] = (100, 0, 0, 0)
    assert counted.grown() == Growth(100, 0, (0, 0))
    perf.says[7] = (200, 50, 1000, 500)
    assert counted.grown() == Growth(200, 50, (4000, 2000))


def test_threads_inherit_the_counters_and_other_processes_do_not(perf: FakePerf) -> None:
    TaskCounters(7, EVENTS)
    assert perf.flags == [INHERIT | INHERIT_THREAD] * 2


def test_a_kernel_before_5_13_has_all_that_a_task_begins_inherit(perf: FakePerf) -> None:
    perf.known_flags = INHERIT
    TaskCounters(7, EVENTS)
    assert perf.flags == [INHERIT | INHERIT_THREAD, INHERIT] * 2


def test_a_refusal_leaves_nothing_open(perf: FakePerf) -> None:
    perf.most_open = 1
    with pytest.raises(OSError, match="Too many open files"):
        TaskCounters(7, EVENTS)
    assert perf.descriptors == 0
    perf.most_open, perf.read_fails = 10, {7: errno.ECHILD}
    with pytest.raises(ChildProcessError):
        TaskCounters(7, EVENTS)
    assert perf.descriptors == 0
