# SPDX-License-Identifier: Apache-2.0
"""Waiting for a flag."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from vmqos.daemon.wakeup import Wakeup

LONG = 30.0


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    made = Wakeup()
    yield made
    made.close()


def is_short(wakeup: Wakeup) -> bool:
    before = time.monotonic()
    assert wakeup.wait(LONG)
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


@pytest.mark.parametrize("seconds", [1e7, 1e11, math.inf])
def test_a_wait_may_be_longer_than_the_kernel_waits(wakeup: Wakeup, seconds: float) -> None:
    timer = threading.Timer(0.05, wakeup.set)
    timer.start()
    assert wakeup.wait(seconds)
    timer.join()


def test_a_signal_handler_ends_the_wait(wakeup: Wakeup) -> None:
    previous = signal.signal(signal.SIGUSR1, lambda *_: wakeup.set())
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    assert is_short(wakeup)
    timer.join()
    signal.signal(signal.SIGUSR1, previous)


def test_no_descriptor_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    Wakeup().close()
    assert len(os.listdir("/proc/self/fd")) <= before, "what a test before this one left open may be closed meanwhile"
