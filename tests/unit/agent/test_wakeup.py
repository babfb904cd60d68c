# SPDX-License-Identifier: Apache-2.0
"""Waiting for a flag, and for the ends of processes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from vmqos.agent.wakeup import Wakeup
from vmqos.hypervisor import processes
from vmqos.hypervisor.model import Process

LONG = 30.0


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    made = Wakeup()
    yield made
    made.close()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen(["sleep", "1000"])
    yield made
    made.kill()
    made.wait()


def is_short(wakeup: Wakeup) -> bool:
    before = time.monotonic()
    wakeup.wait(LONG)
    return time.monotonic() - before < LONG / 3


def test_a_set_flag_ends_the_next_wait_and_only_that(wakeup: Wakeup) -> None:
    wakeup.set()
    wakeup.set()
    assert is_short(wakeup)
    before = time.monotonic()
    assert not wakeup.wait(0.05)
    assert time.monotonic() - before >= 0.05


def test_another_thread_ends_the_wait(wakeup: Wakeup) -> None:
    timer = threading.Timer(0.05, wakeup.set)
    timer.start()
    assert is_short(wakeup)
    timer.join()


def test_a_signal_handler_ends_the_wait(wakeup: Wakeup) -> None:
    previous = signal.signal(signal.SIGUSR1, lambda *_: wakeup.set())
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    assert is_short(wakeup)
    timer.join()
    signal.signal(signal.SIGUSR1, previous)


def test_a_process_that_ends_ends_the_wait_once(wakeup: Wakeup, child: subprocess.Popen[bytes]) -> None:
    process = processes.of_pid(child.pid)
    wakeup.follow({process})
    assert not wakeup.wait(0.01)
    threading.Timer(0.05, child.kill).start()
    assert wakeup.wait(LONG)
    wakeup.follow({process})
    assert not wakeup.wait(0.01), "it is a zombie, and was told of"


def test_the_end_of_a_process_that_is_not_followed_any_more_is_no_news(
    wakeup: Wakeup, child: subprocess.Popen[bytes]
) -> None:
    wakeup.follow({processes.of_pid(child.pid)})
    wakeup.follow(set())
    child.kill()
    child.wait()
    assert not wakeup.wait(0.01)


def test_a_process_that_is_gone_or_whose_pid_is_anothers_is_left_out(
    wakeup: Wakeup, child: subprocess.Popen[bytes]
) -> None:
    known = processes.of_pid(child.pid)
    wakeup.follow({Process(9999999, 1), Process(known.pid, known.start_time - 1)})
    child.kill()
    child.wait()
    assert not wakeup.wait(0.01)


def test_no_descriptor_is_left(child: subprocess.Popen[bytes]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    wakeup = Wakeup()
    wakeup.follow({processes.of_pid(child.pid)})
    wakeup.close()
    assert len(os.listdir("/proc/self/fd")) == before
