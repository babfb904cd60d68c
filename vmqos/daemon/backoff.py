# SPDX-License-Identifier: Apache-2.0
"""When to try again after a failure: the pause doubles with each failure, up to a limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass

from vmqos.reason import Reason


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure under a key.

    :ivar reason: what failed.
    :ivar delay: seconds between the failure and the next try.
    :ivar due: the monotonic time of the next try, in seconds.
    """

    reason: Reason
    delay: float
    due: float


class Backoff:
    """The failures that no success followed yet, by key; every method may be called from any thread.

    :param shortest: seconds until the first new try, greater than 0.
    :param longest: the most seconds between two tries.
    :param clock: monotonic seconds.
    """

    def __init__(self, shortest: float, longest: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.shortest = shortest
        self.longest = longest
        self._clock = clock
        self._failures: dict[Hashable, Failure] = {}

    def fail(self, key: Hashable, reason: Reason, at_most: float = math.inf) -> None:
        """Note a failure; the key waits twice as long as after its last failure.

        :param reason: what failed.
        :param at_most: the most seconds to wait for something that is known to be over soon.
        """
        last = self._failures.get(key)
        delay = min(self.longest, at_most, last.delay * 2 if last else self.shortest)
        self._failures[key] = Failure(reason, delay, self._clock() + delay)

    def succeed(self, key: Hashable) -> None:
        """Forget the key's failures."""
        self._failures.pop(key, None)

    def keep_only(self, keys: Collection[Hashable]) -> None:
        """Forget the failures of all other keys."""
        for key in self._failures.keys() - set(keys):
            self._failures.pop(key, None)

    def get(self, key: Hashable) -> Failure | None:
        """The key's last failure, ``None`` where nothing is wrong."""
        return self._failures.get(key)

    def waits(self, key: Hashable) -> bool:
        """Whether it is too early to try the key again."""
        failure = self._failures.get(key)
        return failure is not None and failure.due > self._clock()

    def is_due(self, key: Hashable) -> bool:
        """Whether the key has failed, and it is time to try it again."""
        failure = self._failures.get(key)
        return failure is not None and failure.due <= self._clock()

    def seconds_until(self, failure: Failure) -> float:
        """Seconds until what failed is tried again, 0 or more."""
        return max(0.0, failure.due - self._clock())

    def due(self) -> set[Hashable]:
        """The keys that have failed and that it is time to try again; costs as much as there are failures."""
        now = self._clock()
        return {key for key, failure in list(self._failures.items()) if failure.due <= now}

    def waiting(self) -> set[Hashable]:
        """The keys that have failed and that it is too early to try again."""
        now = self._clock()
        return {key for key, failure in list(self._failures.items()) if failure.due > now}

    def next_due(self) -> float | None:
        """Seconds until the first key may be tried again; ``None`` where nothing is wrong."""
        first = min((failure.due for failure in list(self._failures.values())), default=None)
        return None if first is None else max(0.0, first - self._clock())
