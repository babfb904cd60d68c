# SPDX-License-Identifier: Apache-2.0
"""Putting off what can wait, such as the rest of a full audit, while a VM waits for the next pass; but not for long."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST = 1.0
"""Seconds for which passes in a row may give way. The pass after that is made as if nothing waited: so however many
events come, the rest of a full audit goes on once a second, for a whole share of the lock."""


class Courtesy:
    """Says whether a pass gives way; the methods may be called from one thread.

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

    def begin_pass(self) -> None:
        """Note that a pass begins: the one before it gave way, or it did not and ends the row."""
        if not self.is_given:
            self._since = None
        elif self._since is None:
            self._since = self._clock()
        self.is_given = False
