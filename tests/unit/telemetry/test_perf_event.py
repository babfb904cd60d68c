# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno

import pytest

from tests.unit.telemetry import fake_perf
from tests.unit.telemetry.fake_perf import INHERIT, INHERIT_THREAD, FakePerf
from vmqos.telemetry.perf_event import CountsTogether, GrowingCounts, Growth, TaskCounters

EVENTS = ((0, 0), (0, 1))


@pytest.fixture
def perf(monkeypatch: pytest.MonkeyPatch) -> FakePerf:
    return fake_perf.put_in_place(monkeypatch)


def counting(*tids: int) -> GrowingCounts:
    growing = GrowingCounts(len(EVENTS))
    for tid in tids:
        growing.add(TaskCounters(tid, EVENTS))
    return growing


def test_a_task_is_counted_from_its_opening_on(perf: FakePerf) -> None:
    perf.says[7] = (100, 100, 1000, 500)
    counted = counting(7)
    perf.says[7] = (150, 150, 1600, 800)
    assert counted.grown() == Growth(50, 50, (600, 300))
    assert counted.grown() == Growth(0, 0, (0, 0))


def test_what_others_took_the_counters_for_is_made_up_for(perf: FakePerf) -> None:
    counted = counting(7)
    perf.says[7] = (100, 25, 1000, 500)
    assert counted.grown() == Growth(100, 25, (4000, 2000))
    # Only what came since is scaled, so a count never falls.
    perf.says[7] = (200, 125, 2000, 1000)
    assert counted.grown() == Growth(100, 100, (1000, 500))


def test_a_time_without_any_counter_is_made_up_for_when_there_is_one(perf: FakePerf) -> None:
    counted = counting(7)
    perf.says[7] = (100, 0, 0, 0)
    assert counted.grown() == Growth(100, 0, (0, 0))
    assert counted.grown() == Growth(0, 0, (0, 0))
    perf.says[7] = (200, 50, 1000, 500)
    assert counted.grown() == Growth(200, 50, (4000, 2000))


def test_many_tasks_grow_by_the_sum_of_what_each_does(perf: FakePerf) -> None:
    perf.says[8] = (40, 40, 400, 4)
    counted = counting(7, 8)
    perf.says |= {7: (10, 10, 100, 1), 8: (60, 60, 700, 6)}
    assert counted.grown() == Growth(30, 30, (400, 3))


def test_of_many_tasks_each_is_scaled_by_its_own_time(perf: FakePerf) -> None:
    counted = counting(7, 8, 9)
    # The first had the counters for all of its time, the second for a half, and the third for none.
    perf.says |= {7: (10, 10, 100, 1), 8: (20, 10, 100, 1), 9: (30, 0, 0, 0)}
    assert counted.grown() == Growth(60, 20, (300, 3))
    # The others go on, while the third sleeps; then it has them for a half of all its time.
    perf.says |= {7: (20, 20, 200, 2), 8: (40, 30, 300, 3)}
    assert counted.grown() == Growth(30, 30, (300, 3))
    perf.says |= {9: (60, 30, 300, 3)}
    assert counted.grown() == Growth(60, 30, (600, 6))
    perf.says |= {7: (30, 30, 300, 3), 9: (70, 40, 400, 4)}
    assert counted.grown() == Growth(20, 20, (200, 2))


def test_a_task_that_comes_later_is_counted_from_then_on(perf: FakePerf) -> None:
    counted = counting(7)
    perf.says |= {7: (10, 10, 100, 1), 8: (50, 50, 500, 5)}
    counted.add(TaskCounters(8, EVENTS))
    perf.says[8] = (60, 60, 600, 6)
    assert counted.grown() == Growth(20, 20, (200, 2))


def test_a_group_that_can_not_be_read_is_an_error(perf: FakePerf) -> None:
    counted = counting(7)
    perf.read_fails[7] = errno.ECHILD
    with pytest.raises(ChildProcessError):
        counted.grown()
    with pytest.raises(ChildProcessError):
        counting(7)


def test_counts_that_are_read_together_grow_as_each_does_alone(perf: FakePerf) -> None:
    one, none, two = counting(7), counting(), counting(8, 9)
    together = CountsTogether([one, none, two])
    perf.says |= {7: (10, 10, 100, 1), 8: (20, 20, 200, 2), 9: (40, 20, 200, 2)}
    assert together.grown() == [Growth(10, 10, (100, 1)), Growth(0, 0, (0, 0)), Growth(60, 40, (600, 6))]
    perf.says[8] = (21, 21, 203, 2)
    assert two.grown() == Growth(1, 1, (3, 0))
    perf.says[9] = (41, 21, 204, 2)
    assert together.grown() == [Growth(0, 0, (0, 0)), Growth(0, 0, (0, 0)), Growth(1, 1, (4, 0))]


def test_nothing_is_lost_where_one_of_those_that_are_read_together_can_not_be_read(perf: FakePerf) -> None:
    one, other = counting(7), counting(8)
    together = CountsTogether([one, other])
    perf.says |= {7: (10, 10, 100, 1), 8: (20, 20, 200, 2)}
    perf.read_fails[8] = errno.ECHILD
    with pytest.raises(ChildProcessError):
        together.grown()
    assert one.grown() == Growth(10, 10, (100, 1))


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
