# SPDX-License-Identifier: Apache-2.0
"""libvirt's event loop, which a process has once, in a thread that runs while a connection needs it.

libvirt's client library keeps one event loop implementation per process and for ever (``virEventRegisterImpl``), and
prints errors to stderr unless the process says otherwise. That makes this module the one place with state of its own.
"""

from __future__ import annotations

import logging
import threading
import time

import libvirt

LOG = logging.getLogger(__name__)

_lock = threading.Lock()
_users = 0
_thread: threading.Thread | None = None
_stop = threading.Event()
_timer: int | None = None


def acquire() -> None:
    """Have the event loop run until :func:`release`; call it before a connection is opened."""
    global _users, _thread, _stop, _timer
    with _lock:
        if _timer is None:
            libvirt.virEventRegisterDefaultImpl()
            libvirt.registerErrorHandler(lambda context, error: None, None)
            _timer = libvirt.virEventAddTimeout(-1, lambda timer, opaque: _quiet(timer), None)
        _users += 1
        if _users == 1:
            _stop = threading.Event()
            _thread = threading.Thread(target=_run, args=(_stop, _timer), name="libvirt-events", daemon=True)
            _thread.start()


def release() -> None:
    """Give up what :func:`acquire` gave; the last user's release ends the thread. Not for callbacks of libvirt's."""
    global _users, _thread
    with _lock:
        _users -= 1
        if _users or _thread is None or _timer is None:
            return
        _stop.set()
        libvirt.virEventUpdateTimeout(_timer, 0)
        _thread.join()
        _thread = None


def _run(stop: threading.Event, timer: int) -> None:
    while not stop.is_set():
        _turn()
    # A closed connection's socket is freed by the loop's next turns, so the last user's takes two more.
    for _ in range(2):
        libvirt.virEventUpdateTimeout(timer, 0)
        _turn()


def _turn() -> None:
    try:
        libvirt.virEventRunDefaultImpl()
    except libvirt.libvirtError as error:
        LOG.error("libvirt's event loop failed: %s", error)
        time.sleep(0.1)


def _quiet(timer: int) -> None:
    libvirt.virEventUpdateTimeout(timer, -1)
