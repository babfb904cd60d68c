# SPDX-License-Identifier: Apache-2.0
"""The list of the files of a group's counters, made once for all groups, and which value belongs to which counter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from vmqos.resctrl.filesystem import join
from vmqos.resctrl.monitoring import Counters, Value, readings
from vmqos.telemetry.model import EVENTS, MBM_LOCAL, MBM_TOTAL, Missing, Reading, add, total

ByEvent = Mapping[str, Reading]

Parts = tuple[Mapping[int, ByEvent], ByEvent, Mapping[int, Mapping[int, ByEvent]], Mapping[int, ByEvent]]
"""The readings of one group: by cache id and event; their sums over all caches, or all packages, by event; by cache id,
sub-NUMA node and event; by package id and event. All but the last have each of :data:`vmqos.telemetry.model.EVENTS`.
"""


@dataclass(frozen=True, slots=True)
class Domain:
    """What the kernel counts in one place.

    :ivar cache: the id of the cache whose counters these are, with those of its sub-NUMA nodes; ``None`` for a
        package's.
    :ivar path: their directory, below a group's.
    :ivar files: paths below that.
    """

    cache: int | None
    path: str
    files: tuple[str, ...]


class Shape:
    """The files of every group's ``mon_data``. Its methods take the files' values in order and tell whose they are.

    :param counters: the counters of one group (:func:`vmqos.resctrl.monitoring.read_counters`).
    :param with_nodes: whether sub-NUMA nodes are read, too.
    :ivar domains: the files, by the cache or the package that they count for.
    :ivar count: how many files there are.
    :ivar events: the events that are counted, in ascending order.
    :ivar of_caches: the positions of each cache's three :data:`vmqos.telemetry.model.EVENTS`; empty unless each cache
        counts all of them.
    :ivar of_packages: the positions of the packages' counters among a group's values.
    :ivar of_traffic: the positions of the memory traffic's.
    """

    def __init__(self, counters: Sequence[Counters], with_nodes: bool = False) -> None:
        wanted = [found for found in counters if with_nodes or found.source.node is None]
        self.events = tuple(sorted({event for found in wanted for event in found.events}))
        self._caches: dict[int, dict[str, int]] = {}
        self._nodes: dict[int, dict[int, dict[str, int]]] = {}
        self._packages: dict[int, dict[str, int]] = {}
        self._sums: dict[str, list[int]] = {event: [] for event in EVENTS}
        domains: dict[tuple[int | None, int | None], Domain] = {}
        start = 0
        for found in wanted:
            source = found.source
            key = source.cache, source.package
            domain = domains.get(key, Domain(source.cache, found.path, ()))
            below = found.path.removeprefix(domain.path).strip("/")
            domains[key] = replace(domain, files=(*domain.files, *(join(below, event) for event in found.events)))
            positions = {event: start + offset for offset, event in enumerate(found.events)}
            start += len(positions)
            if source.package is not None:
                self._packages[source.package] = positions
            elif source.cache is not None:
                every = {**dict.fromkeys(EVENTS, _LAST), **positions}
                if source.node is not None:
                    self._nodes.setdefault(source.cache, {})[source.node] = every
                    continue
                self._caches[source.cache] = every
            for event, position in positions.items():
                self._sums.setdefault(event, []).append(position)
        self.of_traffic = sorted(
            every[event]
            for every in (*self._caches.values(), *(one for nodes in self._nodes.values() for one in nodes.values()))
            for event in (MBM_TOTAL, MBM_LOCAL)
            if every[event] != _LAST
        )
        whole = all(_LAST not in every.values() for every in self._caches.values())
        of_caches = {cache: tuple(every[event] for event in EVENTS) for cache, every in self._caches.items()}
        self.of_caches = of_caches if whole else {}
        # Each has three events at least, so a picker returns a tuple.
        self._pick_caches = [
            (cache, tuple(every), itemgetter(*every.values())) for cache, every in self._caches.items()
        ]
        self.of_packages = sorted(at for events in self._packages.values() for at in events.values())
        self.domains = tuple(domains.values())
        self.count = sum(len(domain.files) for domain in self.domains)

    def decode(self, values: Sequence[Value]) -> Parts:
        """What one group's values mean."""
        found = readings(values)
        found.append(_NO_COUNTER)
        return (
            {cache: dict(zip(names, pick(found), strict=True)) for cache, names, pick in self._pick_caches},
            {event: self._total(values, positions) for event, positions in self._sums.items()},
            {cache: {node: _pick(found, events) for node, events in of.items()} for cache, of in self._nodes.items()},
            {package: _pick(found, events) for package, events in self._packages.items()},
        )

    def add(self, values: Sequence[Value], others: Sequence[Value]) -> list[Value]:
        """The counters of two groups, one by one: the sum, or the reason why there is none.

        A package that has heard of one of them alone has counted nothing for the other.
        """
        found = add(values, others)
        for at in self.of_packages:
            one, other = values[at], others[at]
            if one is Missing.UNAVAILABLE:
                found[at] = other
            elif other is Missing.UNAVAILABLE:
                found[at] = one
        return found

    def _total(self, values: Sequence[Value], positions: Sequence[int]) -> Reading:
        """The sum over all caches or over all packages. A VM need not have run on every package."""
        parts = [values[at] for at in positions]
        if self.of_packages and positions and positions[0] in self.of_packages:
            parts = [part for part in parts if part is not Missing.UNAVAILABLE] or parts
        return total(parts)


_NO_COUNTER = Reading.none(Missing.NO_COUNTER)
_LAST = -1


def _pick(found: Sequence[Reading], positions: Mapping[str, int]) -> ByEvent:
    return {event: found[at] for event, at in positions.items()}
