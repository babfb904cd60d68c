# SPDX-License-Identifier: Apache-2.0
"""Which files a group's counters are, worked out once for all groups, and how their values are told apart again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmqos.resctrl.filesystem import join
from vmqos.resctrl.monitoring import Counters, Value
from vmqos.telemetry.model import EVENTS, Missing, Reading, total

ByEvent = Mapping[str, Reading]


class Shape:
    """The files of every group's ``mon_data``; its methods tell apart their values, given in the order of the files.

    :param counters: what one group's has (:func:`vmqos.resctrl.monitoring.read_counters`).
    :param with_nodes: whether sub-NUMA nodes are read, too.
    :ivar files: paths below a group's directory.
    :ivar events: the events that are counted, in ascending order.
    :ivar has_nodes: whether there is anything for :meth:`nodes`.
    :ivar has_packages: whether there is anything for :meth:`packages`.
    """

    def __init__(self, counters: Sequence[Counters], with_nodes: bool = False) -> None:
        wanted = [found for found in counters if with_nodes or found.source.node is None]
        self.files = tuple(join(found.path, event) for found in wanted for event in found.events)
        self.events = tuple(sorted({event for found in wanted for event in found.events}))
        self._caches: dict[int, dict[str, int]] = {}
        self._nodes: dict[int, dict[int, dict[str, int]]] = {}
        self._packages: dict[int, dict[str, int]] = {}
        self._sums: dict[str, list[int]] = {event: [] for event in EVENTS}
        start = 0
        for found in wanted:
            source = found.source
            positions = {event: start + offset for offset, event in enumerate(found.events)}
            start += len(positions)
            if source.cache is not None and source.node is not None:
                self._nodes.setdefault(source.cache, {})[source.node] = positions
                continue
            if source.cache is not None:
                self._caches[source.cache] = positions
            elif source.package is not None:
                self._packages[source.package] = positions
            for event, position in positions.items():
                self._sums.setdefault(event, []).append(position)
        self.has_nodes = bool(self._nodes)
        self.has_packages = bool(self._packages)

    def caches(self, values: Sequence[Value]) -> Mapping[int, ByEvent]:
        """The readings by cache id and event; each of :data:`vmqos.telemetry.model.EVENTS` is there."""
        return {cache: _pick(values, positions, _NOTHING) for cache, positions in self._caches.items()}

    def nodes(self, values: Sequence[Value]) -> Mapping[int, Mapping[int, ByEvent]]:
        """The readings by cache id, sub-NUMA node and event."""
        return {
            cache: {node: _pick(values, positions, _NOTHING) for node, positions in nodes.items()}
            for cache, nodes in self._nodes.items()
        }

    def packages(self, values: Sequence[Value]) -> Mapping[int, ByEvent]:
        """The readings by package id and event."""
        return {package: _pick(values, positions, {}) for package, positions in self._packages.items()}

    def totals(self, values: Sequence[Value]) -> ByEvent:
        """The sums over all caches, or all packages, by event."""
        return {event: total([values[at] for at in positions]) for event, positions in self._sums.items()}

    def nowhere(self, missing: Missing) -> list[Value]:
        """The values where no file could be read."""
        return [missing] * len(self.files)


_NOTHING = dict.fromkeys(EVENTS, Reading.none(Missing.NO_COUNTER))


def _pick(values: Sequence[Value], positions: Mapping[str, int], otherwise: ByEvent) -> ByEvent:
    found = dict(otherwise)
    for event, position in positions.items():
        value = values[position]
        found[event] = Reading.none(value) if isinstance(value, Missing) else Reading(value)
    return found
