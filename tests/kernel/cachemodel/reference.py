# SPDX-License-Identifier: Apache-2.0
"""The same model once more, as short as it can be said: what the plugin's is held to.

A cache is a dictionary of sets, a set a dictionary of ways, and what was used last is at the end of a list. It is slow,
and has neither sampling nor threads.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.kernel.cachemodel.counts import MAX_WAYS, Curve
from tests.kernel.cachemodel.library import Access, From, Geometry, Kind


@dataclass(slots=True)
class Line:
    """A line in a way."""

    number: int
    rmid: int
    dirty: bool


@dataclass(slots=True)
class Set:
    """The ways of a set that hold something, and the ways in the order in which they were used."""

    ways: dict[int, Line] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)

    def find(self, number: int) -> int | None:
        return next((way for way, line in self.ways.items() if line.number == number), None)

    def use(self, way: int) -> None:
        self.order = [other for other in self.order if other != way] + [way]

    def fill(self, line: Line, mask: int, ways: int) -> Line | None:
        """Returns what goes, the line itself if it can't come in."""
        allowed = [way for way in range(ways) if mask >> way & 1]
        if not allowed:
            return line
        empty = [way for way in allowed if way not in self.ways]
        way = empty[0] if empty else next(way for way in self.order if way in allowed)
        gone = self.ways.get(way)
        self.ways[way] = line
        self.use(way)
        return gone


class Reference:
    """L2s, L3s and memory."""

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        self.l2: dict[int, dict[int, Set]] = defaultdict(lambda: defaultdict(Set))
        self.l3: dict[int, dict[int, Set]] = defaultdict(lambda: defaultdict(Set))
        self.writebacks: Counter[tuple[int, int]] = Counter()
        self.evicted: Counter[tuple[int, int, int]] = Counter()
        """By domain, the RMID that brought in a line, and the RMID whose line went for it."""
        self.distances: Counter[tuple[int, int, int]] = Counter()
        """Accesses to an L3 by domain, RMID, and how many lines of the set it accessed since it accessed this one."""
        self._stacks: dict[tuple[int, int, int], list[int]] = defaultdict(list)

    def run(self, accesses: Iterable[Access]) -> list[From]:
        return [self._access(access) for access in accesses]

    def curve(self, rmid: int, domain: int = 0) -> Curve:
        numbers = [self.distances[domain, rmid, distance] for distance in range(MAX_WAYS + 1)]
        return Curve.of(numbers, self._geometry.l3_ways)

    def flush(self, cpu: int, domain: int) -> None:
        for where in [where for where in self._stacks if where[0] == domain]:
            del self._stacks[where]
        for level in (self.l2[cpu], self.l3[domain]):
            for one in level.values():
                for line in one.ways.values():
                    self._write_back(line, domain, memory=level is self.l3[domain])
            level.clear()

    def occupancy(self, rmid: int, domain: int = 0) -> int:
        return sum(64 * (line.rmid == rmid) for one in self.l3[domain].values() for line in one.ways.values())

    def _access(self, access: Access) -> From:
        g = self._geometry
        l2 = self.l2[access.cpu][access.line % g.l2_sets]
        way = l2.find(access.line)
        if way is not None:
            l2.use(way)
            l2.ways[way].dirty |= access.kind is Kind.STORE
            return From.L2
        served = self._read_l3(access)
        gone = l2.fill(Line(access.line, access.rmid, access.kind is Kind.STORE), access.l2_mask, g.l2_ways)
        if gone:
            self._write_back(gone, access.domain)
        return served

    def _read_l3(self, access: Access) -> From:
        l3 = self.l3[access.domain][access.line % self._geometry.l3_sets]
        way = l3.find(access.line)
        if way is not None and l3.ways[way].rmid != access.rmid:
            self.distances[access.domain, access.rmid, 0] += 1
        else:
            self._measure(access)
        if way is not None:
            l3.use(way)
            return From.L3
        gone = l3.fill(Line(access.line, access.rmid, dirty=False), access.l3_mask, self._geometry.l3_ways)
        if gone and gone.number != access.line:
            self.evicted[access.domain, access.rmid, gone.rmid] += 1
        if gone:
            self._write_back(gone, access.domain, memory=True)
        return From.MEMORY

    def _measure(self, access: Access) -> None:
        stack = self._stacks[access.domain, access.rmid, access.line % self._geometry.l3_sets]
        distance = stack.index(access.line) if access.line in stack else MAX_WAYS
        stack[:] = [access.line, *(line for line in stack if line != access.line)]
        # How far beyond is not counted.
        self.distances[access.domain, access.rmid, distance if distance < self._geometry.l3_ways else MAX_WAYS] += 1

    def _write_back(self, line: Line, domain: int, *, memory: bool = False) -> None:
        if not line.dirty:
            return
        l3 = self.l3[domain][line.number % self._geometry.l3_sets]
        way = None if memory else l3.find(line.number)
        if way is not None:
            l3.ways[way].dirty = True
        else:
            self.writebacks[domain, line.rmid] += 1
