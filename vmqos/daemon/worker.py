# SPDX-License-Identifier: Apache-2.0
"""A thread that works beside the loop, until it is told to end."""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE = 5.0
"""Seconds that its end is waited for: what it asks of others may take longer, and ends with the process."""


class Worker:
    """The thread, and the condition under which it shares what it knows with others.

    :param name: the thread's.
    :param patience: seconds that its end is waited for.
    :ivar condition: held while anything that is shared is read or changed; notified when the thread is to end.
    :ivar ends: whether it is to end.
    """

    def __init__(self, name: str, patience: float = PATIENCE) -> None:
        self.condition = threading.Condition()
        self.ends = False
        self._name = name
        self._patience = patience
        self._thread: threading.Thread | None = None

    def start(self, run: Callable[[], None]) -> None:
        """Start the thread; ``run`` returns soon after :attr:`ends` became true."""
        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Have it end, and wait for that; it need not have been started."""
        with self.condition:
            self.ends = True
            self.condition.notify_all()
        if self._thread is not None:
            self._thread.join(self._patience)
