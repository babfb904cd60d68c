# SPDX-License-Identifier: Apache-2.0
"""The ways of one cache: which ways may be given to VMs, and which to the default group and the classes.

Inside the planner a set of ways is a plain integer, way 0 being bit 0: packing looks at thousands of sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace


def run(start: int, length: int) -> int:
    """The set of ``length`` neighbouring ways from ``start`` on."""
    return ((1 << length) - 1) << start


def runs(ways: int) -> Iterator[tuple[int, int]]:
    """Start and length of each maximal run of neighbouring ways, lowest first."""
    while ways:
        first = ways & -ways
        # The sum carries from the first way over all of its run.
        rest = ways & (ways + first)
        yield first.bit_length() - 1, (ways ^ rest).bit_count()
        ways = rest


def longest_run(ways: int) -> int:
    """The length of the longest run of neighbouring ways; 0 if there is no way."""
    return max((length for _, length in runs(ways)), default=0)


def lowest(ways: int) -> int:
    """The lowest way of a set that is not empty."""
    return (ways & -ways).bit_length() - 1


def union(sets: Iterable[int]) -> int:
    """The ways that are in any of the sets."""
    together = 0
    for ways in sets:
        together |= ways
    return together


@dataclass(frozen=True, slots=True)
class Need:
    """What the pool must have: the default group's mask, in which the classes' masks lie.

    :ivar width: how many ways; 0 where it can have none.
    :ivar clean: how many of these without the company of a foreign group.
    """

    width: int
    clean: int


@dataclass(frozen=True, slots=True)
class WantedMask:
    """One exclusive mask to be placed.

    :ivar key: whose it is.
    :ivar length: how many ways it shall have.
    :ivar held: the ways that it has now; 0 if it has none that it could keep.
    """

    key: str
    length: int
    held: int = 0


@dataclass(frozen=True, slots=True)
class CacheWays:
    """What one cache has to give.

    :ivar every: every way of the cache.
    :ivar pool: the ways that the default group may have.
    :ivar company: those of ``pool`` that it has now together with a foreign group. It need not leave them, and goes to
        no others of that kind.
    :ivar exclusive: those of ``pool`` that a VM may have for itself, none of ``company`` among them.
    :ivar shareable: the ways that I/O fills too.
    :ivar fewest: the fewest ways a mask may have, 1 or more.
    :ivar sparse: whether a mask may have gaps.
    :ivar floor: how many ways the default group keeps (rule 2): nothing is promised exclusively before it has them.
    :ivar reserved: the ways that the operator wants left alone.
    :ivar foreign: the ways that groups of others have.
    """

    every: int
    pool: int
    company: int
    exclusive: int
    shareable: int
    fewest: int
    sparse: bool
    floor: int = 1
    reserved: int = 0
    foreign: int = 0

    def without(self, ways: int) -> CacheWays:
        """The ways of the cache where no VM can be given these ways."""
        return replace(self, pool=self.pool & ~ways, company=self.company & ~ways, exclusive=self.exclusive & ~ways)

    def with_company(self, ways: int) -> CacheWays:
        """The ways of the cache where the default group may stay on these ways, which are not to be promised."""
        ways &= ~self.pool
        return replace(self, pool=self.pool | ways, company=self.company | ways)

    def legal(self, ways: int) -> bool:
        """Whether the kernel takes the set as a mask (:meth:`vmqos.resctrl.capabilities.CacheResource.check`)."""
        if ways & ~self.every or ways.bit_count() < self.fewest:
            return False
        # Adding the lowest way to neighbours carries past all of them.
        return self.sparse or not ways & (ways + (ways & -ways))

    def parts(self, ways: int, size: int) -> Iterator[int]:
        """The legal masks of that size within the ways; where they may have gaps, just one: any is as good."""
        if size < self.fewest or ways.bit_count() < size:
            return
        if self.sparse:
            yield take(ways, size)
            return
        for start, length in runs(ways):
            for first in range(start, start + length - size + 1):
                yield run(first, size)

    def largest(self, ways: int) -> int:
        """The size of the largest legal mask within the ways; 0 if there is none."""
        size = ways.bit_count() if self.sparse else longest_run(ways)
        return size if size >= self.fewest else 0

    def best_part(self, ways: int, size: int, liked: Iterable[int]) -> int:
        """The legal mask of that size within the ways that has the most of what is liked; 0 if there is none.

        :param liked: sets of ways, the one that matters most first; of equals, the lowest mask wins.
        """
        if size < self.fewest or ways.bit_count() < size:
            return 0
        if self.sparse:
            return _gather(ways, size, liked)
        wishes = tuple(liked)
        return max(
            self.parts(ways, size), default=0, key=lambda part: tuple((part & wish).bit_count() for wish in wishes)
        )


def take(ways: int, size: int) -> int:
    """The ``size`` lowest of the ways."""
    taken = 0
    for _ in range(size):
        taken |= ways & ~taken & -(ways & ~taken)
    return taken


def _gather(ways: int, size: int, liked: Iterable[int]) -> int:
    """``size`` of the ways, those that are in the first wishes first, then the lowest."""
    classes = [ways]
    for wish in liked:
        classes = [part for group in classes for part in (group & wish, group & ~wish)]
    taken = 0
    for group in classes:
        taken |= take(group, min(size - taken.bit_count(), group.bit_count()))
    return taken
