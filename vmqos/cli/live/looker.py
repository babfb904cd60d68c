# SPDX-License-Identifier: Apache-2.0
"""Looking again and again, while the screen shows the newest look."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Look = TypeVar("Look")


class Looker(Generic[Look]):
    """Looks from a thread of its own, so that keys are heard while the agent is not.

    :ivar newest: the newest look; ``None`` before the first.
    :ivar problem: why the last look failed; empty if it did not.
    """

    def __init__(self, look: Callable[[], Look], delay: float, tell: Callable[[], None]) -> None:
        self.newest: Look | None = None
        self.problem = ""
        self._look = look
        self._delay = delay
        self._tell = tell
        self._wish = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="looker", daemon=True)

    def __enter__(self) -> Looker[Look]:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over = True
        self._wish.set()
        # A look that hangs ends with the process.
        self._thread.join(0.5)

    def hurry(self) -> None:
        """Look at once."""
        self._wish.set()

    def _run(self) -> None:
        while True:
            self._wish.wait(self._delay)
            self._wish.clear()
            if self._over:
                return
            try:
                self.newest = self._look()
                self.problem = ""
            except Exception as error:
                self.problem = str(error)
            if not self._over:
                self._tell()
