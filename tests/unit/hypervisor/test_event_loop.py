# SPDX-License-Identifier: Apache-2.0
"""libvirt's event loop runs while somebody needs it."""

from __future__ import annotations

import threading

from vmqos.hypervisor import event_loop


def running() -> bool:
    return any(thread.name == "libvirt-events" for thread in threading.enumerate())


def test_it_runs_from_the_first_user_to_the_last() -> None:
    for _ in range(3):
        event_loop.acquire()
        event_loop.acquire()
        assert running()
        event_loop.release()
        assert running()
        event_loop.release()
        assert not running()
