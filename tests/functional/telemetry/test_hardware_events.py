# SPDX-License-Identifier: Apache-2.0
"""Counting processes by perf_event_open, with events that every kernel has in the place of the hardware's."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.functional.conftest import WaitFor
from tools.lab.processes import cpu_seconds
from vmqos.telemetry import hardware_events
from vmqos.telemetry.exceptions import TasksKeepComing, TooManyTasks
from vmqos.telemetry.hardware_events import HARDWARE, CountedTasks, HardwareEvents

SOFTWARE = (1, 1), (1, 3), (1, 2), (1, 4)
"""PERF_TYPE_SOFTWARE: the task's clock, context switches, page faults, migrations to another CPU."""

Run = Callable[[str], int]
"""Starts a Python program; returns its PID."""

BUSY = """
import threading
def work():
    while True: pass
for _ in range(3): threading.Thread(target=work, daemon=True).start()
work()
"""


@pytest.fixture
def events() -> Iterator[HardwareEvents]:
    """Nanoseconds of CPU time where cycles would be."""
    counting = HardwareEvents(SOFTWARE)
    yield counting
    counting.close()


@pytest.fixture
def run() -> Iterator[Run]:
    """Start Python programs that end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> int:
        started.append(subprocess.Popen([sys.executable, "-c", program]))
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def descriptors() -> int:
    # What another test left to the collector would be closed at any time.
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_a_process_is_counted_with_all_its_threads_and_an_idle_one_is_not(
    events: HardwareEvents, run: Run, wait_for: WaitFor, tmp_path: Path
) -> None:
    sleeps = tmp_path / "sleeps"
    idle = run(f"import time; open({str(sleeps)!r}, 'w').close(); time.sleep(1000)")
    wait_for(sleeps.exists, "the idle one having started")
    busy = run(BUSY)
    wait_for(lambda: threads(busy) == 4, "the threads of the busy one")
    began = cpu_seconds(busy)
    first = events.read([busy, idle])
    assert not first[busy].known and not first[idle].known
    ran = cpu_seconds(busy)
    wait_for(lambda: cpu_seconds(busy) > ran + 0.5, "it having run for a while")
    second = events.read([busy, idle])
    took = cpu_seconds(busy) - began
    assert second[busy].known and second[idle].known
    assert 0.4e9 < second[busy].cycles < (took + 0.5) * 1e9
    assert second[idle].cycles < second[busy].cycles / 20
    assert events.unavailable == ""


LATE = """
import os, sys, threading, time
def work():
    begun = time.thread_time()
    while time.thread_time() < begun + 0.3: pass
def child():
    begin(work)
def begin(what):
    one = threading.Thread(target=what)
    one.start()
    one.join()
print("ready", flush=True)
sys.stdin.readline()
begin(child)
print("done", flush=True)
sys.stdin.readline()
"""
"""It starts a thread that starts another one, which runs for 0.3 s; both have ended when it says so."""


def test_threads_that_come_and_go_between_two_reads_are_counted_with_the_one_that_started_them(
    events: HardwareEvents,
) -> None:
    before = descriptors()
    with subprocess.Popen(
        [sys.executable, "-c", LATE], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        pipes = descriptors() - before
        # The start of Python takes CPU time, too.
        assert process.stdout.readline() == "ready\n"
        began = cpu_seconds(process.pid)
        events.read([process.pid])
        assert descriptors() == before + pipes + 4
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        found = events.read([process.pid])[process.pid]
        # /proc tells hundredths of a second.
        assert found.known and 0.3 <= found.cycles / 1e9 < cpu_seconds(process.pid) - began + 0.05
        assert descriptors() == before + pipes + 4
        assert events.read([process.pid])[process.pid].cycles < 0.1e9
        assert events.read([]) == {}
        assert descriptors() == before + pipes
        process.stdin.close()


def test_each_thread_that_a_process_has_already_is_counted_once(
    events: HardwareEvents, run: Run, wait_for: WaitFor
) -> None:
    busy = run(BUSY)
    wait_for(lambda: threads(busy) == 4, "the threads of the busy one")
    before = descriptors()
    began = cpu_seconds(busy)
    events.read([busy])
    opened = cpu_seconds(busy)
    assert descriptors() == before + 16
    wait_for(lambda: cpu_seconds(busy) > opened + 0.5, "it having run for a while")
    ran = cpu_seconds(busy)
    counted = events.read([busy])[busy].cycles / 1e9
    # /proc tells hundredths of a second of each thread.
    assert ran - opened - 0.05 < counted < cpu_seconds(busy) - began + 0.05


def test_a_process_that_is_gone_is_left_out(events: HardwareEvents) -> None:
    assert events.read([2**22 + 1]) == {}


def test_a_process_that_starts_threads_all_the_time_is_not_counted_wrongly() -> None:
    numbers = itertools.count(os.getpid())
    before = descriptors()
    with pytest.raises(TasksKeepComing, match="each of the 5 times"):
        CountedTasks(lambda: [os.getpid(), next(numbers)], SOFTWARE)
    assert descriptors() == before


def test_too_many_tasks_are_refused_before_any_is_opened() -> None:
    before = descriptors()
    with pytest.raises(TooManyTasks, match=r"it has 3 tasks, .* 2 tasks can be counted"):
        CountedTasks(lambda: [1, 2, 3], SOFTWARE, most=2)
    assert descriptors() == before


def test_closing_leaves_nothing_open(events: HardwareEvents, run: Run) -> None:
    before = descriptors()
    events.read([run(BUSY), os.getpid()])
    events.close()
    assert descriptors() == before


def test_a_kernel_that_has_no_such_events_is_told(run: Run) -> None:
    nonsense = HardwareEvents(((12345, 0), (12345, 1), (12345, 2), (12345, 3)))
    assert nonsense.unavailable == "this kernel gives no hardware events, as in most virtual machines"
    assert nonsense.read([os.getpid()]) == {}


def test_hardware_events_are_there_or_it_is_said_why(run: Run, wait_for: WaitFor) -> None:
    counting = HardwareEvents(HARDWARE)
    try:
        busy = run(BUSY)
        wait_for(lambda: threads(busy) == 4, "the threads of the busy one")
        counting.read([busy])
        if counting.unavailable:
            known = hardware_events._WHY.values()
            assert counting.unavailable in known or counting.unavailable.startswith("not permitted: ")
            assert counting.read([busy]) == {}
            return
        ran = cpu_seconds(busy)
        wait_for(lambda: cpu_seconds(busy) > ran + 0.3, "it having run for a while")
        found = counting.read([busy])[busy]
        assert 0.01 < found.instructions / found.cycles < 20
    finally:
        counting.close()


def test_too_few_descriptors_are_told_and_not_fatal(run: Run, tmp_path: Path, wait_for: WaitFor) -> None:
    script = f"""
import resource
from vmqos.telemetry.hardware_events import HardwareEvents
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
events = HardwareEvents({SOFTWARE!r})
events.read([{run(BUSY)}] + list(range(1, 200)))
print(events.unavailable)
"""
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == ("too many open files: raise the limit (ulimit -n)\n", "")
