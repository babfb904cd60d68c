# SPDX-License-Identifier: Apache-2.0
"""What a person sees while experiments run: one line that moves on a terminal, a line for each step elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status


class Display:
    """Shows which guest runs, for how long, and what its experiments are at.

    :param number: how many guests there are to run.
    """

    def __init__(self, number: int) -> None:
        self._console = Console(highlight=False)
        self._number = number
        self._turn = 0
        self._started = time.monotonic()
        self._at = ""
        self._heard = 0
        self._title = ""
        self._status: Status | None = None

    @contextmanager
    def guest(self, name: str) -> Iterator[None]:
        """Show one while the block runs it."""
        self._turn += 1
        self._title, self._at, self._started = f"{self._turn}/{self._number} {name}", "booting", time.monotonic()
        self._heard = 0
        with self._console.status(self._title) as status:
            self._status = status if self._console.is_terminal else None
            if self._status is None:
                self._say(self._at)
            yield
        self._say("done")

    def step(self, said: Sequence[str]) -> None:
        """Show what it is at.

        :param said: all that it has said so far, line by line.
        """
        for line in said[self._heard :]:
            self._at = line
            if self._status is None:
                self._say(line)
        self._heard = len(said)
        if self._status is not None:
            self._status.update(f"{self._title}, {self._seconds}: {self._at}")

    def _say(self, text: str) -> None:
        self._console.print(f"{self._title}, {self._seconds}: {text}", markup=False, soft_wrap=True)

    @property
    def _seconds(self) -> str:
        return f"{time.monotonic() - self._started:.0f} s"
