# SPDX-License-Identifier: Apache-2.0
"""How long one pass may hold the lock on resctrl, and how many tasks can be moved in the rest of that time.

libvirt, pqos and the readers of resctrl wait for the same lock. A pass that has more to do than fits into its share
gives the lock back, and the next pass goes on. The times are aims: one write, one read of a file and one listing of a
process are never interrupted, so a pass may take a little longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.1
"""Seconds that one pass may hold the lock."""

SMALLEST_CHUNK = 64
"""Tasks that are moved in each turn even if its time is over, so that every turn gets further."""

LARGEST_CHUNK = 512
"""Tasks that are moved, at most, between two looks at the clock: about as many ids as fit into one write."""

_FIRST_GUESS = 50e-6
"""Seconds that the move of one task is assumed to take at first. A kernel needs less, the simulator more."""

Clock = Callable[[], float]


class LockShare:
    """The time that one pass may hold the lock; it begins when the lock was taken.

    :param seconds: how long, more than 0.
    :param clock: monotonic seconds.
    """

    __slots__ = ("_clock", "began", "seconds")

    def __init__(self, seconds: float = SHARE, clock: Clock = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self.began = clock()

    def now(self) -> float:
        """The time, in monotonic seconds."""
        return self._clock()

    def end(self, part: float = 1.0) -> float:
        """When the first part of the share ends, in monotonic seconds.

        :param part: 0 to 1.
        """
        return self.began + self.seconds * part

    def is_over(self, part: float = 1.0) -> bool:
        """Whether the first part of the share is used up.

        :param part: 0 to 1.
        """
        return self._clock() >= self.end(part)


class Pace:
    """How long the move of a task took lately; one object watches one mount.

    :param clock: monotonic seconds.
    """

    __slots__ = ("_clock", "_seconds_each")

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._seconds_each = _FIRST_GUESS

    def fits(self, until: float) -> int:
        """How many tasks can be moved until then: :data:`SMALLEST_CHUNK` to :data:`LARGEST_CHUNK`, or 0 if fewer fit.

        :param until: monotonic seconds.
        """
        number = min(LARGEST_CHUNK, (until - self._clock()) / self._seconds_each)
        return int(number) if number >= SMALLEST_CHUNK else 0

    def timed(self, number: int, move: Callable[[], frozenset[int]]) -> frozenset[int]:
        """Carry out a move of tasks, and learn from it how long the move of one task takes.

        :param number: how many tasks ``move`` moves.
        :returns: what ``move`` returns.
        """
        began = self._clock()
        moved = move()
        if number >= SMALLEST_CHUNK:
            self._seconds_each = max(1e-7, (self._clock() - began) / number)
        return moved
