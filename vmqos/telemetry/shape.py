# SPDX-License-Identifier: Apache-2.0
"""Which files a group's counters are, worked out once for all groups, and how their readings are told apart again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmqos.resctrl.filesystem import join
from vmqos.resctrl.monitoring import Counters
from vmqos.telemetry.model import EVENTS, Missing, Reading, total

ByEvent = Mapping[str, Reading]


@dataclass(frozen=True, slots=True)
class Sorted:
    """One group's readings by what they count; see :class:`vmqos.telemetry.model.VmReading`."""

    caches: Mapping[int, ByEvent]
    nodes: Mapping[int, Mapping[int, ByEvent]]
    packages: Mapping[int, ByEvent]
    totals: ByEvent


class Shape:
    """The files of every group's ``mon_data``.

    :param counters: what one group's has (:func:`vmqos.resctrl.monitoring.read_counters`).
    :param nodes: whether sub-NUMA nodes are read, too.
    :ivar files: paths below a group's directory.
    :ivar events: the events that are counted, in ascending order.
    """

    def __init__(self, counters: Sequence[Counters], nodes: bool = False) -> None:
        wanted = [found for found in counters if nodes or found.source.node is None]
        self.files = tuple(join(found.path, event) for found in wanted for event in found.events)
        self.events = tuple(sorted({event for found in wanted for event in found.events}))
        self._parts: list[tuple[Counters, int]] = []
        self._absent: dict[int, dict[str, Reading]] = {}
        positions: dict[str, list[int]] = {event: [] for event in EVENTS}
        start = 0
        for found in wanted:
            self._parts.append((found, start))
            if found.source.node is None:
                for offset, event in enumerate(found.events):
                    positions.setdefault(event, []).append(start + offset)
            if found.source.cache is not None:
                lacking = [event for event in EVENTS if event not in found.events]
                self._absent[start] = dict.fromkeys(lacking, Reading.none(Missing.NO_COUNTER))
            start += len(found.events)
        self._sums = tuple(positions.items())

    def sort(self, readings: Sequence[Reading]) -> Sorted:
        """Tell apart the readings of :attr:`files`, which are in the same order."""
        caches: dict[int, ByEvent] = {}
        nodes: dict[int, dict[int, ByEvent]] = {}
        packages: dict[int, ByEvent] = {}
        for found, start in self._parts:
            source = found.source
            by_event = dict(zip(found.events, readings[start : start + len(found.events)], strict=True))
            if source.package is not None:
                packages[source.package] = by_event
                continue
            by_event.update(self._absent[start])
            assert source.cache is not None
            if source.node is None:
                caches[source.cache] = by_event
            else:
                nodes.setdefault(source.cache, {})[source.node] = by_event
        totals = {event: _sum(readings, positions) for event, positions in self._sums}
        return Sorted(caches, nodes, packages, totals)

    def sort_all(self, missing: Missing) -> Sorted:
        """The same where no file could be read."""
        return self.sort([Reading.none(missing)] * len(self.files))


def _sum(readings: Sequence[Reading], positions: Sequence[int]) -> Reading:
    return readings[positions[0]] if len(positions) == 1 else total(readings[position] for position in positions)
