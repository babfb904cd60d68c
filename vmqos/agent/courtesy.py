# SPDX-License-Identifier: Apache-2.0
"""How a pass is no burden to others: how long it holds the lock on resctrl, and for whom it puts off what can wait.

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

LONGEST = 1.0
"""Seconds for which passes in a row may give way. The pass after that is made as if nothing waited: so however many
events come, the rest of a full audit goes on once a second, for a whole share of the lock."""


class Courtesy:
    """Says whether a pass puts off what can wait, such as the rest of a full audit, while a VM waits for the next pass.

    The methods may be called from one thread.

    :param longest: seconds for which passes in a row may give way; ``None``: :data:`LONGEST`.
    :param clock: monotonic seconds.
    """

    def __init__(self, longest: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest = LONGEST if longest is None else longest
        self._clock = clock
        self._since: float | None = None
        self.is_given = False
        """Whether this pass has given way."""

    def gives_way(self) -> bool:
        """Whether to give way now; to be asked only where there is something to give way to."""
        if self._since is not None and self._clock() >= self._since + self._longest:
            return False
        self.is_given = True
        return True

    def end_pass(self) -> None:
        """Note that a pass has ended: it gave way, and the next one may, or it did not and ends the row."""
        if not self.is_given:
            self._since = None
        elif self._since is None:
            self._since = self._clock()
        self.is_given = False


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
