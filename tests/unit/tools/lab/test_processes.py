# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.unit.clock import Clock
from tools.lab import processes

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


def test_a_process_that_does_not_belong_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        processes.end(process.pid, lambda pid: False)
        assert process.poll() is None
        process.kill()


def test_sigkill_follows_where_sigterm_is_ignored() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        processes.end(process.pid, lambda pid: True, polite_for=0.1)
        assert process.wait(60) == -9


def test_a_process_that_is_gone_is_fine() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    processes.end(process.pid, lambda pid: True)


def test_the_start_time_tells_a_process_from_a_later_one() -> None:
    first = processes.start_time(os.getpid())
    time.sleep(0.02)
    with subprocess.Popen(["sleep", "60"]) as process:
        second = processes.start_time(process.pid)
        process.kill()
    assert first is not None and second is not None and first < second


def test_the_wait_ends_with_what_did_not_happen() -> None:
    with pytest.raises(TimeoutError, match="pigs flying: not within 0 s"):
        processes.wait_until(lambda: False, "pigs flying", 0.1)


def test_time_in_which_the_machine_stands_still_does_not_count(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: float) -> None:
        clock.now += seconds + (3.0 if clock.now == 0 else 0.0)

    monkeypatch.setattr(processes.time, "sleep", sleep)
    monkeypatch.setattr(processes.time, "monotonic", clock)
    with pytest.raises(TimeoutError):
        processes.wait_until(lambda: False, "pigs flying", 1.0, 0.25)
    assert clock.now == 3.0 + 1.25


def test_a_process_of_any_bytes_is_looked_at_like_any_other() -> None:
    program = "import sys; open('/proc/self/comm', 'wb').write(b'\\xff) \\xfe'); print(flush=True); sys.stdin.read()"
    command = [os.fsencode(sys.executable), b"-c", os.fsencode(program), b"\xff\xc0\x80"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert processes.start_time(process.pid) is not None and processes.cpu_seconds(process.pid) >= 0
        assert processes.parent(process.pid) == os.getpid()
        assert processes.arguments(process.pid) == list(map(os.fsdecode, command))
        process.kill()
    assert processes.arguments(process.pid) == [] and processes.parent(process.pid) is None
