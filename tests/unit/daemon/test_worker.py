# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

from vmqos.daemon.worker import Worker


def test_it_wakes_what_waits_and_is_over_when_stop_returns() -> None:
    worker, told = Worker("waiting"), []

    def run() -> None:
        with worker.condition:
            told.append(threading.current_thread().name)
            worker.condition.wait_for(lambda: worker.ends)
        told.append("ended")

    worker.start(run)
    worker.stop()
    assert told == ["waiting", "ended"]


def test_one_that_never_started_can_be_stopped() -> None:
    worker = Worker("idle")
    worker.stop()
    assert worker.ends
