# SPDX-License-Identifier: Apache-2.0
"""Looking at one VM after the other. A look that hangs does not keep the other VMs waiting.

Asking libvirt for the list of its VMs is such a look, too: libvirt answers late while it starts or ends a VM.

A process can make a read of its files in /proc last as long as it likes: its command line may be in memory that the
process itself has to fill first (userfaultfd(2), FUSE). No process can call such a read off. So it is left behind, with
its thread, and another thread goes on with the next VM.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

LEAST_DEADLINE = 0.01
"""Seconds that a look has at least, even if many looks of the same round were left behind before it."""

MOST_UNDER_WAY = 64
"""Looks that are under way at most, each with its thread: half of what the agent may have (``TasksMax=`` in its unit).
If more hung, no other part of the agent could start a thread any more."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Done(Generic[_T]):
    """A look that has ended.

    :ivar key: what was looked at, such as the UUID of a VM.
    :ivar began: when it began, by the monotonic clock.
    :ivar seconds: how long it took.
    :ivar value: what was found; ``None`` where an exception ended it.
    :ivar error: the exception.
    """

    key: str
    began: float
    seconds: float
    value: _T | None = None
    error: Exception | None = None


class NoThreadLeft(Exception):
    """A look was not begun, because there is no thread for it."""


@dataclass(slots=True, eq=False)
class _Lane:
    """One thread, and the look that it makes now."""

    key: str | None = None
    since: float = field(default=0.0)
    left_behind: bool = False


class Looks(Generic[_T]):
    """Calls one function for many keys, one after the other, in a thread of its own.

    :meth:`wake` may be called from any thread, the other methods from one.

    :param look: the function; it is called for no key twice at the same time.
    :param on_late: called from the thread once a look has ended that :meth:`run` no longer waited for.
    """

    def __init__(self, look: Callable[[str], _T], on_late: Callable[[], None]) -> None:
        self._look = look
        self._on_late = on_late
        self._condition = threading.Condition()
        self._queue: deque[str] = deque()
        self._under_way: dict[str, float] = {}
        self._done: list[Done[_T]] = []
        self._lane: _Lane | None = None
        self._closed = False

    @property
    def under_way(self) -> dict[str, float]:
        """When each look was begun that was left behind and has not ended yet, by the monotonic clock, by its key."""
        with self._condition:
            return dict(self._under_way)

    @property
    def has_results(self) -> bool:
        """Whether looks have ended that :meth:`run` has not returned yet."""
        with self._condition:
            return bool(self._done)

    def run(
        self,
        keys: Iterable[str],
        deadline: Callable[[], float],
        budget: float,
        gives_way: Callable[[], bool] = lambda: False,
    ) -> list[Done[_T]]:
        """Look at all of these keys whose look is not under way.

        :param deadline: tells the seconds after which a look is left behind; it is asked again after each :meth:`wake`.
            Where it says 0, no further look is begun either. The looks after one that was left behind have half of
            that, and so on, so that a hundred looks that hang do not take a hundred times as long as one. A look that
            was only slow ends a little later, and a later call returns it.
        :param budget: seconds after which no further look is begun; the first look is begun in any case.
        :param gives_way: says whether no further look is begun from now on; it is asked again after each :meth:`wake`.
        :returns: the looks that have ended, also those that an earlier call left behind. Where no thread is left to
            begin the others, each of these has ended with :class:`NoThreadLeft`.
        """
        until, part = time.monotonic() + budget, 1.0
        with self._condition:
            self._queue.extend(key for key in keys if key not in self._under_way)
            asked_for = len(self._queue)
            while True:
                now, left, lane = time.monotonic(), part * deadline(), self._lane
                seconds = max(LEAST_DEADLINE, left)
                if len(self._queue) < asked_for and (now >= until or left <= 0 or gives_way()):
                    self._queue.clear()
                if lane is not None and lane.key is not None and now >= lane.since + seconds:
                    lane.left_behind = True
                    lane = self._lane = None
                    part /= 2
                if not self._queue and (lane is None or lane.key is None):
                    done, self._done = self._done, []
                    return done
                if lane is None:
                    lane = self._begin_lane()
                    if lane is None:
                        continue
                self._condition.notify_all()
                # The thread goes from look to look without waking this one, which wakes when a look may have to be
                # left behind.
                wait = lane.since + seconds - now if lane.key is not None else min(seconds, until - now)
                self._condition.wait(max(LEAST_DEADLINE, wait))

    def wake(self) -> None:
        """Have :meth:`run` ask again for the deadline, and whether it gives way."""
        with self._condition:
            self._condition.notify_all()

    def close(self) -> None:
        """End the thread, and each one that was left behind as soon as its look ends."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _begin_lane(self) -> _Lane | None:
        """A further thread; ``None`` where there can be none, and all that is to be looked at has failed for that."""
        lane, why = _Lane(), f"{len(self._under_way)} looks hang already"
        if len(self._under_way) < MOST_UNDER_WAY:
            try:
                threading.Thread(target=self._work, args=(lane,), name="look", daemon=True).start()
            except RuntimeError as error:
                why = str(error)
            else:
                self._lane = lane
                return lane
        now, failure = time.monotonic(), NoThreadLeft(f"no thread is left to look at it: {why}")
        self._done += [Done(key, now, 0.0, error=failure) for key in self._queue]
        self._queue.clear()
        return None

    def _work(self, lane: _Lane) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._queue or self._closed)
                if self._closed:
                    return
                key = lane.key = self._queue.popleft()
                began = lane.since = self._under_way[key] = time.monotonic()
            value: _T | None = None
            error: Exception | None = None
            try:
                value = self._look(key)
            except Exception as found:  # it concerns this key alone; the caller of run gets it
                error = found
            with self._condition:
                self._done.append(Done(key, began, time.monotonic() - began, value, error))
                del self._under_way[key]
                lane.key = None
                if not self._queue:
                    self._condition.notify_all()
            if lane.left_behind:
                self._on_late()
                return
