# SPDX-License-Identifier: Apache-2.0
"""Answers that are used again for a while, and questions that are not asked again at once after a failure."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from oslo_log import log

from nova_plugin.scheduler.placement import PlacementFailed

LOG = log.getLogger(__name__)

T = TypeVar("T")

LONGEST_PAUSE = 60.0


class Cached(Generic[T]):
    """An answer of Placement, for all threads of the scheduler.

    After a failure the next question waits 1 second, then 2, 4 and so on up to :data:`LONGEST_PAUSE`; until one is
    answered, the last answer stays in use.

    :param name: of what is asked, for the log.
    :param ask: asks it; raises :class:`~nova_plugin.scheduler.placement.PlacementFailed`.
    :param lifetime: tells for how many seconds an answer is used again.
    :param clock: seconds, ever rising.
    """

    def __init__(
        self,
        name: str,
        ask: Callable[[], T],
        lifetime: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._ask = ask
        self._lifetime = lifetime
        self._clock = clock
        self._asking = threading.Lock()
        self._answer: tuple[T] | None = None
        self._answered = 0.0
        self._failures = 0
        self._problem: PlacementFailed | None = None
        self._not_before = 0.0

    def get(self) -> T:
        """The answer, asked for if the last one is too old.

        One thread asks at a time; the others take the last answer, and wait only where there is none.

        :raises PlacementFailed: if there never was an answer, and there is none.
        """
        answer = self._answer
        if answer is not None and self._clock() - self._answered < self._lifetime():
            return answer[0]
        if self._asking.acquire(blocking=answer is None):
            try:
                self._renew(answer)
            finally:
                self._asking.release()
        if self._answer is not None:
            return self._answer[0]
        raise PlacementFailed(str(self._problem))

    def outdate(self, age: float) -> bool:
        """Have the answer asked for anew when it is wanted next, if it is older than that; whether it is.

        It is not after a failure, which has its own pause.

        :param age: seconds.
        """
        if self._answer is None or self._problem is not None or self._clock() - self._answered <= age:
            return False
        self._answered = -math.inf
        return True

    def _renew(self, known: tuple[T] | None) -> None:
        if self._answer is not known:
            return  # another thread asked while this one waited
        now = self._clock()
        if self._problem is not None and now < self._not_before:
            return
        try:
            self._answer = (self._ask(),)
        except PlacementFailed as error:
            self._failures += 1
            pause = min(LONGEST_PAUSE, 2.0 ** (self._failures - 1))
            self._problem, self._not_before = error, self._clock() + pause
            used = "there is no earlier answer" if self._answer is None else "the last answer stays in use"
            LOG.warning("Placement does not tell %s; %s; next try in %d s: %s", self._name, used, pause, error)
        else:
            if self._failures:
                LOG.info("Placement tells %s again", self._name)
            self._failures, self._problem = 0, None
            self._answered = now
