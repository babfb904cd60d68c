# SPDX-License-Identifier: Apache-2.0
"""How long one pass may hold the lock on resctrl, and how many tasks can be moved in the rest of that time.

libvirt, pqos and the readers of resctrl wait for the same lock. A pass that has more to do than fits into its share
gives the lock back, and the next pass goes on. The times are aims: one write, one read of a file and one listing of a
process are never interrupted, so a pass may take a little longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

SHARE = 0.1
"""Seconds that one pass may hold the lock."""

SMALLEST_CHUNK = 64
"""Tasks that are moved in each turn even if its time is over, so that every turn gets further."""

LARGEST_CHUNK = 512
"""Tasks that are moved, at most, between two looks at the clock: about as many ids as fit into one write."""

_FIRST_GUESS = 50e-6
"""Seconds that the move of one task is assumed to take at first. A kernel needs less, the simulator more."""


@dataclass(frozen=True, slots=True)
class LockShare:
    """The time that one pass may hold the lock; it begins when the lock was taken.

    :ivar seconds: how long, more than 0.
    :ivar began: when it began, in monotonic seconds.
    :ivar is_wanted: says whether something that is in a hurry waits for the lock: then the share is over.
    :ivar gives_way: says whether what the next pass can do as well is left to it, because something is in a hurry.
    :ivar can_wait: whether the tasks can be looked at by the next pass as well: no VM waits for this one.
    """

    seconds: float = SHARE
    began: float = field(default_factory=time.monotonic)
    is_wanted: Callable[[], bool] = lambda: False
    gives_way: Callable[[], bool] = lambda: False
    can_wait: bool = False

    def end(self, part: float = 1.0) -> float:
        """When the first part of the share ends, in monotonic seconds.

        :param part: 0 to 1.
        """
        return self.began + self.seconds * part

    def is_over(self, part: float = 1.0, at_least: float = 0.0) -> bool:
        """Whether the first part of the share is used up.

        :param part: 0 to 1.
        :param at_least: it lasts until then, in monotonic seconds, unless something in a hurry waits for the lock.
        """
        return time.monotonic() >= max(at_least, self.end(part)) or self.is_wanted()


class Pace:
    """How long the move of a task took lately; one object watches one mount."""

    __slots__ = ("_seconds_each",)

    def __init__(self) -> None:
        self._seconds_each = _FIRST_GUESS

    def fits(self, until: float) -> int:
        """How many tasks can be moved until then: :data:`SMALLEST_CHUNK` to :data:`LARGEST_CHUNK`, or 0 if fewer fit.

        :param until: monotonic seconds.
        """
        number = min(LARGEST_CHUNK, (until - time.monotonic()) / self._seconds_each)
        return int(number) if number >= SMALLEST_CHUNK else 0

    def timed(self, number: int, move: Callable[[], frozenset[int]]) -> frozenset[int]:
        """Carry out a move of tasks, and learn from it how long the move of one task takes.

        :param number: how many tasks ``move`` moves.
        :returns: what ``move`` returns.
        """
        began = time.monotonic()
        moved = move()
        if number >= SMALLEST_CHUNK:
            self._seconds_each = max(1e-7, (time.monotonic() - began) / number)
        return moved
