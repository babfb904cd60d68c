# SPDX-License-Identifier: Apache-2.0
"""The flag that a daemon's main thread waits for."""

from __future__ import annotations

import os
import select

LONGEST = 86400.0
"""Seconds that a wait takes at most: poll(2) takes milliseconds as an int, which is less than 25 days."""


class Wakeup:
    """A flag to wait for; :meth:`set` may be called from any thread, the rest from one.

    Unlike :class:`threading.Event` it takes no lock, so that a signal handler may set it.
    """

    def __init__(self) -> None:
        self._flag = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._flag, select.POLLIN)

    def set(self) -> None:
        """End the wait under way, or the next one."""
        os.eventfd_write(self._flag, 1)

    def wait(self, seconds: float) -> bool:
        """Wait until :meth:`set` was called since the last wait, or the time is over; whether it was.

        :param seconds: more than :data:`LONGEST` are taken for as many.
        """
        is_set = bool(self._poll.poll(min(max(0.0, seconds), LONGEST) * 1000))
        if is_set:
            os.eventfd_read(self._flag)
        return is_set

    def close(self) -> None:
        """Give the descriptor back; no thread may call :meth:`set` any more."""
        os.close(self._flag)
