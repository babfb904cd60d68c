# SPDX-License-Identifier: Apache-2.0
"""Waking the loop, from another thread or from a signal handler."""

from __future__ import annotations

import os
import select


class Wakeup:
    """A flag to wait for. Unlike :class:`threading.Event` it takes no lock, so that a signal handler may set it."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def set(self) -> None:
        """End the wait under way, or the next one."""
        os.eventfd_write(self._descriptor, 1)

    def wait(self, seconds: float) -> None:
        """Wait until :meth:`set` was called since the last wait, or until the time is over."""
        if select.select([self._descriptor], [], [], max(0.0, seconds))[0]:
            os.eventfd_read(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back; no thread may call :meth:`set` any more."""
        os.close(self._descriptor)
