# SPDX-License-Identifier: Apache-2.0
"""What the model of the caches counts, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LINE = 64
"""Bytes of a cache line."""
MAX_WAYS = 32
"""Ways that a cache may have."""
NUMBERS = 16
"""How many numbers the plugin has for an RMID (``tests/kernel/plugin/window.h``)."""


@dataclass(frozen=True, slots=True)
class Served:
    """Where accesses were served from.

    :ivar l2: how many found their line in the CPU's L2.
    :ivar l3: how many found it in the L3.
    :ivar memory: how many needed it from memory: the L3's misses, each of which fills a way if the mask has one.
    """

    l2: int
    l3: int
    memory: int

    def __add__(self, other: Served) -> Served:
        return Served(self.l2 + other.l2, self.l3 + other.l3, self.memory + other.memory)

    def __sub__(self, other: Served) -> Served:
        return Served(self.l2 - other.l2, self.l3 - other.l3, self.memory - other.memory)

    @property
    def total(self) -> int:
        """All of them."""
        return self.l2 + self.l3 + self.memory


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one RMID in one L3, and in the L2s of its CPUs.

    All but ``instructions`` and ``waited_ns`` are multiples of ``2 ** sample``: one of so many sets is simulated.

    :ivar load: data read.
    :ivar store: data written.
    :ivar fetch: lines of code that were entered.
    :ivar instructions: executed while modelling.
    :ivar writebacks: lines written to memory that had been brought in under this RMID.
    :ivar occupancy: bytes held in the L3 at the time.
    :ivar waited_ns: for how long CPUs stood still.
    """

    load: Served
    store: Served
    fetch: Served
    instructions: int
    writebacks: int
    occupancy: int
    waited_ns: int

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Counts:
        """From the plugin's numbers, in its order."""
        load, store, fetch = (Served(*numbers[4 * kind : 4 * kind + 3]) for kind in range(3))
        return cls(load, store, fetch, numbers[3], numbers[7], numbers[11], numbers[15])

    def __sub__(self, before: Counts) -> Counts:
        """What was counted since; the occupancy stays what it is."""
        return Counts(
            self.load - before.load,
            self.store - before.store,
            self.fetch - before.fetch,
            self.instructions - before.instructions,
            self.writebacks - before.writebacks,
            self.occupancy,
            self.waited_ns - before.waited_ns,
        )

    @property
    def data(self) -> Served:
        """Loads and stores."""
        return self.load + self.store

    @property
    def l3_miss_ratio(self) -> float:
        """The share of the L3's data accesses that went to memory, 0.0 to 1.0; 0.0 if there were none."""
        data = self.data
        return data.memory / (data.l3 + data.memory) if data.l3 + data.memory else 0.0

    @property
    def memory_bytes(self) -> int:
        """Bytes read from memory and written to it: what ``mbm_total_bytes`` counts."""
        return LINE * (self.data.memory + self.fetch.memory + self.writebacks)


@dataclass(frozen=True, slots=True)
class Curve:
    """What an RMID would have missed in an L3 with each number of ways for itself alone.

    :ivar distances: its accesses to the L3, by how many other lines of the set it accessed since it accessed the line
        before; for each number that is less than the ways.
    :ivar beyond: its accesses with more lines in between, and those to a line that it never accessed before.
    """

    distances: tuple[int, ...]
    beyond: int

    @classmethod
    def of(cls, numbers: Sequence[int], ways: int) -> Curve:
        """From the plugin's numbers, one for each of :data:`MAX_WAYS` distances, and one for those beyond."""
        return cls(tuple(numbers[:ways]), numbers[MAX_WAYS])

    def __sub__(self, before: Curve) -> Curve:
        """What was counted since."""
        grown = tuple(now - then for now, then in zip(self.distances, before.distances, strict=True))
        return Curve(grown, self.beyond - before.beyond)

    @property
    def accesses(self) -> int:
        """All of them; 0: nothing was counted."""
        return sum(self.distances) + self.beyond

    def misses(self, ways: int) -> int:
        """How many it would have missed with so many ways, 0 to all.

        :raises ValueError: if the cache has fewer.
        """
        if not 0 <= ways <= len(self.distances):
            raise ValueError(f"{ways} of {len(self.distances)} ways")
        return sum(self.distances[ways:]) + self.beyond
