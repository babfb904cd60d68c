# SPDX-License-Identifier: Apache-2.0
"""How much CPU time a VM's tasks have used outside of its group."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from vmqos.agent.act import outside_time
from vmqos.agent.act.move_tasks import TaskGroup, TaskGroups, TaskPlacement
from vmqos.agent.act.outside_time import FEW, OutsideTime, measure
from vmqos.hypervisor import processes
from vmqos.hypervisor.model import Process

HOME, OTHER = TaskGroup("vmqos.a"), TaskGroup("vmqos.b")
AIM = TaskGroups(HOME)
FRESH = OutsideTime(Process(100, 1))
SETTLED = replace(FRESH, is_settled=True)
SECOND = 10**9


@pytest.fixture(autouse=True)
def ten_seconds_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task has used ten seconds of CPU, and their process twenty."""
    monkeypatch.setattr(outside_time, "cpu_time", lambda tid: 10 * SECOND)
    monkeypatch.setattr(outside_time, "cpu_time_of_all", lambda pid: 20 * SECOND)


def placed(*tids: int, target: TaskGroup = HOME, outside: int = 0, missing: int = 0) -> TaskPlacement:
    tasks = frozenset(tids)
    return TaskPlacement(target, tasks | frozenset(range(1000, 1000 + missing)), tasks, outside=outside)


def test_until_all_were_in_place_once_a_task_was_outside_since_its_birth() -> None:
    assert measure(FRESH, None, AIM, 1.0, 1.0)([1, 2]) == 20 * SECOND
    assert measure(FRESH, placed(1), AIM, 1.0, 1.0)([1]) == 10 * SECOND


def test_a_task_that_is_new_was_outside_since_its_birth() -> None:
    assert measure(SETTLED, placed(1), AIM, 1.0, 1.0)([2]) == 10 * SECOND


def test_a_task_that_was_moved_away_was_outside_since_the_last_look_at_most() -> None:
    assert measure(SETTLED, placed(1), AIM, 0.5, 99.0)([1]) == SECOND // 2


def test_a_task_that_comes_from_where_it_belonged_was_never_outside() -> None:
    assert measure(SETTLED, placed(1, target=OTHER), AIM, 0.5, 99.0)([1]) == 0


def test_where_resctrl_was_lost_a_task_was_outside_since_its_vm_was_served_at_most() -> None:
    assert measure(SETTLED, None, AIM, math.inf, 3.0)([1]) == 3 * SECOND


def test_of_a_crowd_it_is_what_the_process_has_used_and_that_once() -> None:
    used = measure(FRESH, None, AIM, 1.0, 1.0)(range(FEW + 1))
    assert used == 20 * SECOND
    again = measure(replace(FRESH, at_start=used), None, AIM, 1.0, 1.0)(range(FEW + 1))
    assert again == 0


def test_what_is_at_the_start_ends_when_all_were_in_place() -> None:
    late = FRESH.plus(placed(1, outside=5, missing=1))
    assert (late.at_start, late.later, late.is_settled) == (5, 0, False)
    done = late.plus(placed(1, 2, outside=2))
    assert (done.at_start, done.later, done.is_settled) == (7, 0, True)
    assert done.plus(placed(1, 2, 3, outside=4)) == replace(done, later=4)


def test_what_was_before_the_first_look_is_not_known_where_tasks_had_been_moved() -> None:
    found = replace(FRESH, at_start=None)
    late = found.plus(placed(1, outside=5, missing=1))
    assert (late.at_start, late.later, late.is_settled) == (None, 0, False)
    done = late.plus(placed(1, 2, outside=2))
    assert (done.at_start, done.later, done.is_settled) == (None, 0, True)
    assert done.plus(placed(1, 2, 3, outside=4)) == replace(done, later=4)
    assert measure(done, placed(1), AIM, 1.0, 1.0)(range(2, FEW + 3)) == 20 * SECOND


@pytest.fixture
def worker() -> Iterator[int]:
    """A process that has used some CPU time, and waits."""
    child = subprocess.Popen(
        [sys.executable, "-c", "sum(range(10**6)); print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    yield child.pid
    child.kill()
    child.communicate()


def test_the_kernel_tells_of_a_thread_and_of_a_process(worker: int) -> None:
    thread, process = processes.cpu_time(worker), processes.cpu_time_of_all(worker)
    assert 10**6 < thread <= processes.cpu_time(worker)
    # A process that waits uses none meanwhile, and this one has one thread.
    assert abs(process - thread) < 10**7


def test_of_the_dead_nothing_is_known() -> None:
    assert processes.cpu_time(9999999) == processes.cpu_time_of_all(9999999) == 0
    assert processes.cpu_time_of_all(os.getpid()) > 0
