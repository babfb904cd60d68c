# SPDX-License-Identifier: Apache-2.0
"""Counting processes by perf_event_open, with events that every kernel has in the place of the hardware's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.functional.conftest import WaitFor
from vmqos.telemetry import hardware_events
from vmqos.telemetry.hardware_events import HARDWARE, HardwareEvents

TASK_CLOCK, CONTEXT_SWITCHES, PAGE_FAULTS = (1, 1), (1, 3), (1, 2)
"""PERF_TYPE_SOFTWARE."""

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
    counting = HardwareEvents((TASK_CLOCK, CONTEXT_SWITCHES, PAGE_FAULTS))
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
    return len(os.listdir("/proc/self/fd"))


def test_a_process_is_counted_with_all_its_threads_and_an_idle_one_is_not(
    events: HardwareEvents, run: Run, wait_for: WaitFor, tmp_path: Path
) -> None:
    sleeps = tmp_path / "sleeps"
    idle = run(f"import time; open({str(sleeps)!r}, 'w').close(); time.sleep(1000)")
    wait_for(sleeps.exists, "the idle one having started")
    busy = run(BUSY)
    wait_for(lambda: threads(busy) == 4, "the threads of the busy one")
    began = _cpu_seconds(busy)
    first = events.read([busy, idle])
    assert not first[busy].known and not first[idle].known
    ran = _cpu_seconds(busy)
    wait_for(lambda: _cpu_seconds(busy) > ran + 0.5, "it having run for a while", 30)
    second = events.read([busy, idle])
    took = _cpu_seconds(busy) - began
    assert second[busy].known and second[idle].known
    assert 0.4e9 < second[busy].cycles < (took + 0.5) * 1e9
    assert second[idle].cycles < second[busy].cycles / 20
    assert events.unavailable == ""


def test_threads_that_come_are_found_and_processes_that_go_are_left_out(
    events: HardwareEvents, run: Run, wait_for: WaitFor
) -> None:
    late = (
        "import threading, time\ntime.sleep(1)\ndef work():\n while True: pass\nthreading.Thread(target=work).start()"
    )
    pid = run(late)
    before = descriptors()
    events.read([pid])
    wait_for(lambda: threads(pid) == 2, "the new thread")
    events.read([pid])
    assert descriptors() == before + 6
    assert events.read([]) == {}
    assert descriptors() == before
    assert events.read([2**22 + 1]) == {}


def test_closing_leaves_nothing_open(events: HardwareEvents, run: Run) -> None:
    before = descriptors()
    events.read([run(BUSY), os.getpid()])
    events.close()
    assert descriptors() == before


def test_a_kernel_that_has_no_such_events_is_told(run: Run) -> None:
    nonsense = HardwareEvents(((12345, 0), (12345, 1), (12345, 3)))
    assert nonsense.unavailable == "this kernel gives no hardware events, as in most virtual machines"
    assert nonsense.read([os.getpid()]) == {}


def test_hardware_events_are_there_or_it_is_said_why(run: Run, wait_for: WaitFor) -> None:
    counting = HardwareEvents(HARDWARE)
    try:
        busy = run(BUSY)
        counting.read([busy])
        if counting.unavailable:
            assert counting.unavailable in hardware_events._WHY.values()
            assert counting.read([busy]) == {}
            return
        ran = _cpu_seconds(busy)
        wait_for(lambda: _cpu_seconds(busy) > ran + 0.3, "it having run for a while", 30)
        found = counting.read([busy])[busy]
        assert 0.01 < found.instructions / found.cycles < 20
    finally:
        counting.close()


def test_too_few_descriptors_are_told_and_not_fatal(run: Run, tmp_path: Path, wait_for: WaitFor) -> None:
    script = f"""
import resource
from vmqos.telemetry.hardware_events import HardwareEvents
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
events = HardwareEvents({(TASK_CLOCK, CONTEXT_SWITCHES, PAGE_FAULTS)!r})
events.read([{run(BUSY)}] + list(range(1, 200)))
print(events.unavailable)
"""
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == ("too many open files: raise the limit (ulimit -n)\n", "")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
