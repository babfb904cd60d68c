# SPDX-License-Identifier: Apache-2.0
"""Reading resctrl for an answer of the API, in a thread of its own: a resctrl that hangs costs that thread alone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from vmqos.daemon.worker import Worker
from vmqos.resctrl.exceptions import ResctrlError

PATIENCE = 2.0
"""Seconds that one read may take: it takes milliseconds, or as long as another process keeps the lock on resctrl."""

LAST_MOMENT = 0.1
"""Seconds after that in which a read may still end: where the host stood still for longer, it does."""

T = TypeVar("T")


class ReadTakesLong(ResctrlError):
    """resctrl, or the host, does not answer in time."""

    msg_fmt = (
        "what resctrl says now can't be told: a read of it has taken {seconds:.0f} s so far; "
        "what the agent knows already is in /v1/vms and /v1/caches"
    )


class LiveReads:
    """Carries out one read after the other, between :meth:`start` and :meth:`stop`."""

    def __init__(self) -> None:
        self._worker = Worker("live-reads")
        self._waiting: deque[_Read] = deque()
        self._began: float | None = None

    def start(self) -> None:
        """Read from now on."""
        self._worker.start(self._run)

    def stop(self) -> None:
        """Read no more."""
        self._worker.stop()

    def read(self, how: Callable[[], T]) -> T:
        """What ``how`` returns, called by the thread.

        A caller that comes while a read hangs waits only until that read has taken :data:`PATIENCE`, and for
        :data:`LAST_MOMENT`.

        :raises ReadTakesLong: if that read, or the one before it, takes longer.
        :raises Exception: what ``how`` raises.
        """
        wanted, condition = _Read(how), self._worker.condition
        with condition:
            asked = time.monotonic()
            self._waiting.append(wanted)
            condition.notify_all()
            last: float | None = None
            while not wanted.ended:
                began, now = asked if self._began is None else self._began, time.monotonic()
                left = min(asked, began) + PATIENCE - now
                if left <= 0:
                    last = now + LAST_MOMENT if last is None else last
                    left = last - now
                if left <= 0 or self._worker.ends:
                    if wanted in self._waiting:
                        self._waiting.remove(wanted)
                    raise ReadTakesLong(seconds=now - began)
                condition.wait(left)
        if wanted.error is not None:
            raise wanted.error
        return cast(T, wanted.found)

    def _run(self) -> None:
        condition = self._worker.condition
        while True:
            with condition:
                condition.wait_for(lambda: self._waiting or self._worker.ends)
                if self._worker.ends:
                    return
                read = self._waiting.popleft()
                self._began = time.monotonic()
            read.carry_out()
            with condition:
                read.ended, self._began = True, None
                condition.notify_all()


class _Read:
    """One read, and what came of it."""

    def __init__(self, how: Callable[[], Any]) -> None:
        self._how = how
        self.ended = False
        self.found: Any = None
        self.error: Exception | None = None

    def carry_out(self) -> None:
        try:
            self.found = self._how()
        except Exception as error:  # the one who asked gets it
            self.error = error
