# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import threading
import time

from vmqos.agent.life.wakeup import Wakeup


def test_a_set_flag_ends_the_next_wait_and_only_that() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    before = time.monotonic()
    wakeup.wait(30)
    assert time.monotonic() - before < 10
    before = time.monotonic()
    wakeup.wait(0.05)
    assert time.monotonic() - before >= 0.05
    wakeup.close()


def test_another_thread_ends_the_wait() -> None:
    wakeup = Wakeup()
    timer = threading.Timer(0.05, wakeup.set)
    timer.start()
    before = time.monotonic()
    wakeup.wait(30)
    assert time.monotonic() - before < 10
    timer.join()
    wakeup.close()


def test_a_signal_handler_ends_the_wait() -> None:
    wakeup = Wakeup()
    previous = signal.signal(signal.SIGUSR1, lambda *_: wakeup.set())
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    before = time.monotonic()
    wakeup.wait(30)
    assert time.monotonic() - before < 10
    timer.join()
    signal.signal(signal.SIGUSR1, previous)
    wakeup.close()
