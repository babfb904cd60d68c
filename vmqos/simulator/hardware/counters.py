# SPDX-License-Identifier: Apache-2.0
"""What the L3 caches have counted, by RMID; where sockets are divided into nodes, each node's part of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmqos.simulator.hardware.profiles import Profile


@dataclass(slots=True)
class Counter:
    """The counters of one RMID in one cache, in bytes."""

    occupancy: float = 0.0
    total: float = 0.0
    local: float = 0.0
    total_at_reset: float = 0.0
    local_at_reset: float = 0.0


class Counters:
    """Counters of a machine, and the faults that a test wants them to show."""

    def __init__(self, profile: Profile) -> None:
        self._scale = profile.monitoring.scale if profile.monitoring else 1
        self._counters: dict[tuple[int, int], Counter] = {}
        self._faults: dict[tuple[int, int], str] = {}

    def counter(self, rmid: int, domain: int) -> Counter:
        """The counters of an RMID in a cache."""
        return self._counters.setdefault((rmid, domain), Counter())

    def held(self, domain: int) -> dict[int, Counter]:
        """Every RMID that ever counted in a cache."""
        return {rmid: counter for (rmid, where), counter in self._counters.items() if where == domain}

    def occupancy(self, rmid: int, domain: int) -> int:
        """Bytes of the cache that an RMID holds, in whole units of the hardware."""
        held = self._counters.get((rmid, domain))
        return int(held.occupancy) // self._scale * self._scale if held else 0

    def reset(self, rmid: int, domain: int) -> None:
        """Let the bandwidth counters begin at 0, as they do for a new group (``mon_event_read(first)``)."""
        counter = self.counter(rmid, domain)
        counter.total_at_reset, counter.local_at_reset = counter.total, counter.local

    def read(self, rmids: Sequence[int], domains: Sequence[int], event: str) -> str:
        """What a counter file shows: the sum over what can be read, or why there is nothing (``__mon_event_count``).

        :param domains: one cache, one node, or all nodes of a cache.
        """
        every = [(rmid, domain) for rmid in rmids for domain in domains]
        readable = [one for one in every if one not in self._faults]
        if not readable:
            return self._faults[every[0]]
        return str(sum(self._value(rmid, domain, event) for rmid, domain in readable))

    def set_fault(self, rmid: int, domain: int, text: str | None) -> None:
        """Make an RMID unreadable in one cache, or readable again.

        :param text: what the files shall show, such as ``Unavailable`` or ``Error``.
        """
        if text is None:
            self._faults.pop((rmid, domain), None)
        else:
            self._faults[rmid, domain] = text

    def _value(self, rmid: int, domain: int, event: str) -> int:
        if event == "llc_occupancy":
            return self.occupancy(rmid, domain)
        counter = self.counter(rmid, domain)
        grown = (
            counter.total - counter.total_at_reset
            if event == "mbm_total_bytes"
            else counter.local - counter.local_at_reset
        )
        return int(grown) // self._scale * self._scale
