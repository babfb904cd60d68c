# SPDX-License-Identifier: Apache-2.0
"""RMIDs: the few numbers that counters are kept under, and the limbo that freed ones go through."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable

from vmqos.simulator.kernel.numbers import refusal

CHECK_INTERVAL = 1.0
"""Seconds between two looks at the RMIDs in limbo (``CQM_LIMBOCHECK_INTERVAL``)."""

Dirty = Callable[[int, int], bool]
"""Whether an RMID (first argument) still holds lines above the threshold in a domain (second)."""


class RmidAllocator:
    """The kernel's free list and limbo (``alloc_rmid``, ``free_rmid``, ``__check_limbo``).

    A freed RMID waits until, in every domain, a check once a second has seen its cache lines drained; so
    even one that never ran waits for up to a second. RMID 0 is the default group's for ever.

    :param count: RMIDs of the machine.
    :param domains: ids of the L3 caches that are online.
    :param has_limbo: ``False`` where occupancy is not counted: freed RMIDs are free at once.
    """

    def __init__(self, count: int, domains: Iterable[int], has_limbo: bool = True) -> None:
        self._free = deque(range(1, count))
        self._busy: dict[int, set[int]] = {domain: set() for domain in domains}
        self._next_check: dict[int, float] = {}
        self._waiting: dict[int, int] = {}
        self._has_limbo = has_limbo

    @property
    def in_limbo(self) -> tuple[int, ...]:
        """The RMIDs that wait for their lines to drain, the longest waiting first."""
        return tuple(self._waiting)

    @property
    def free(self) -> tuple[int, ...]:
        """The RMIDs that could be taken, the next one first."""
        return tuple(self._free)

    def take(self) -> int:
        """The RMID that has been free for the longest time.

        :raises OSError: ``EBUSY`` if none is free but some are in limbo, else ``ENOSPC``.
        """
        if not self._free:
            raise refusal(errno.EBUSY if self._waiting else errno.ENOSPC)
        return self._free.popleft()

    def give_back(self, rmid: int, now: float) -> None:
        """Free an RMID.

        :param now: the clock, in seconds.
        """
        if rmid == 0:
            return
        if not self._has_limbo or not self._busy:
            self._free.append(rmid)
            return
        for domain, busy in self._busy.items():
            if not busy:
                self._next_check[domain] = now + CHECK_INTERVAL
            busy.add(rmid)
        self._waiting[rmid] = len(self._busy)

    def check(self, now: float, dirty: Dirty) -> None:
        """Do all the checks that were due until ``now``."""
        while True:
            due = [(at, domain) for domain, at in self._next_check.items() if at <= now and self._busy[domain]]
            if not due:
                return
            at, domain = min(due)
            for rmid in sorted(self._busy[domain]):
                if not dirty(rmid, domain):
                    self._drained(rmid, domain)
            # Looking at a time long past would find what is true now again and again.
            self._next_check[domain] = max(at, now - CHECK_INTERVAL) + CHECK_INTERVAL

    def release(self, rmid: int) -> None:
        """Let one RMID leave limbo as if its lines had just been seen to be gone everywhere."""
        for domain, busy in self._busy.items():
            if rmid in busy:
                self._drained(rmid, domain)

    def set_online(self, domain: int, online: bool) -> None:
        """A cache came or went; what waited for one that went, waits no longer."""
        if online:
            self._busy.setdefault(domain, set())
        elif domain in self._busy:
            for rmid in sorted(self._busy[domain]):
                self._drained(rmid, domain)
            del self._busy[domain]
            self._next_check.pop(domain, None)

    def _drained(self, rmid: int, domain: int) -> None:
        self._busy[domain].discard(rmid)
        self._waiting[rmid] -= 1
        if not self._waiting[rmid]:
            del self._waiting[rmid]
            self._free.append(rmid)
