# SPDX-License-Identifier: Apache-2.0
"""What changed last on this host, numbered, for those who wait for it."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable

from vmqos.agent.remember.changes import Change
from vmqos.local_api import contract

MOST = 2000
"""Events that are remembered: some hundred bytes each, so less than two megabytes."""


class EventLog:
    """Remembers the last events; some threads add, others read and wait.

    :ivar epoch: an id that each agent makes anew at its start: its events are numbered from 1 again.
    """

    def __init__(self) -> None:
        self.epoch = uuid.uuid4().hex
        self._condition = threading.Condition()
        self._events: deque[contract.Event] = deque(maxlen=MOST)
        self._last = 0
        self._is_closed = False

    @property
    def last(self) -> str:
        """Names the last event among those of all runs of the agent."""
        return f"{self.epoch}.{self._last}"

    def add(self, changes: Iterable[Change]) -> list[contract.Event]:
        """Remember what changed, and wake those who wait for it; the events that became of it."""
        now, added = time.time(), list[contract.Event]()
        with self._condition:
            for change in changes:
                self._last += 1
                added.append({"number": self._last, "time": now, **change})
            self._events.extend(added)
            self._condition.notify_all()
        return added

    def after(self, number: int, epoch: str = "", wait: float = 0.0) -> contract.Events:
        """The events with greater numbers, the oldest first.

        :param number: the last number that the client knows.
        :param epoch: the epoch that the number is of; empty for the one of this agent. All events are news to a client
            that knows another one.
        :param wait: seconds to wait at most until there is one.
        """
        if epoch and epoch != self.epoch:
            number = 0
        with self._condition:
            self._condition.wait_for(lambda: self._last > number or self._is_closed, wait)
            found = [event for event in self._events if event["number"] > number]
            first = self._events[0]["number"] if self._events else self._last + 1
            return {"epoch": self.epoch, "first": first, "last": self._last, "events": found}

    def close(self) -> None:
        """Have no client wait any more: the agent ends."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
