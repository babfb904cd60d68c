# SPDX-License-Identifier: Apache-2.0
"""When this machine's CPUs were not to be had: a machine of CI is suspended for seconds, or has other work."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterable

TICK = 0.01
"""Seconds from one look at the clock to the next, on each CPU."""

LATE = 0.03
"""Seconds that a look may be late without having been kept waiting for its CPU."""


class Stalls:
    """Watches from :meth:`__enter__` to :meth:`__exit__` whether each CPU serves a thread that asks for it.

    What a program took is then told without the time in which it could not run, so that a bound of seconds is one for
    the program, and not for the machine. A program that waits, sleeps or is stopped costs no CPU: that counts in full.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._gaps: list[tuple[float, float]] = []
        self._last: dict[int, float] = {}
        self._threads = [
            threading.Thread(target=self._look, args=(cpu,), name=f"stalls-{cpu}", daemon=True)
            for cpu in os.sched_getaffinity(0)
        ]

    def __enter__(self) -> Stalls:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def took(self, since: float) -> float:
        """Seconds from a moment of the monotonic clock until now, without those in which a CPU was not to be had."""
        now = time.monotonic()
        return now - since - self.lost(since, now)

    def lost(self, since: float, until: float) -> float:
        """Seconds between two moments of the monotonic clock in which some CPU was not to be had."""
        waiting = [(last + TICK, until) for last in list(self._last.values()) if until - last > TICK + LATE]
        # They are noted in the order of their ends.
        noted = itertools.takewhile(lambda gap: gap[1] > since, reversed(list(self._gaps)))
        return length((max(begin, since), min(end, until)) for begin, end in [*noted, *waiting])

    def _look(self, cpu: int) -> None:
        # Of this thread alone.
        os.sched_setaffinity(0, {cpu})
        last = self._last[cpu] = time.monotonic()
        while not self._over.wait(TICK):
            now = time.monotonic()
            if now - last > TICK + LATE:
                self._gaps.append((last + TICK, now))
            last = self._last[cpu] = now


def length(parts: Iterable[tuple[float, float]]) -> float:
    """How long intervals are together; what several of them cover counts once, and one that ends first not at all."""
    total, covered = 0.0, float("-inf")
    for begin, end in sorted(parts):
        total += max(0.0, end - max(begin, covered))
        covered = max(covered, end)
    return total
