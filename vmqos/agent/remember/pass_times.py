# SPDX-License-Identifier: Apache-2.0
"""How long the loop's passes took, as a histogram."""

from __future__ import annotations

import threading
from bisect import bisect_left
from itertools import accumulate

from vmqos.local_api import contract

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds: an idle pass takes some milliseconds, one that waits for the lock up to ``[resctrl] lock_timeout``."""


class PassTimes:
    """Counts passes by their length; one thread adds, others read.

    :ivar failed: how many passes failed.
    :ivar last_failed: whether the last pass failed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0
        self.failed = 0
        self.last_failed = False

    def add(self, seconds: float, failed: bool) -> None:
        """One more pass."""
        with self._lock:
            self._counts[bisect_left(BOUNDS, seconds)] += 1
            self._total += seconds
            self.failed += failed
            self.last_failed = failed

    def durations(self) -> contract.Durations:
        """The histogram of all passes so far, failed ones included."""
        with self._lock:
            upto = list(accumulate(self._counts))
            buckets = tuple(zip(BOUNDS, upto, strict=False))
            return {"buckets": buckets, "count": upto[-1], "sum": self._total}
