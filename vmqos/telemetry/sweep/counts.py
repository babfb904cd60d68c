# SPDX-License-Identifier: Apache-2.0
"""Reading the counters of all groups in one loop, cache by cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vmqos.resctrl.monitoring import Missing, Value, parse_all, whole_numbers
from vmqos.telemetry.sweep.group_reader import GroupReader
from vmqos.telemetry.sweep.reading_cpus import travelling
from vmqos.telemetry.sweep.shape import Domain


@dataclass(frozen=True, slots=True)
class Counts:
    """What one look at some groups found; :meth:`values` and :meth:`moments` pick out what belongs to one group.

    :ivar began: monotonic seconds, before the first of them was read.
    :ivar some_unassigned: whether a traffic counter has no hardware counter.
    :ivar are_numbers: whether every counter was a whole number.
    """

    began: float
    some_unassigned: bool
    are_numbers: bool
    _groups: int
    _domains: Sequence[Domain]
    _values: Sequence[Value]
    _moments: Sequence[float]

    def values(self, group: int) -> list[Value]:
        """What the files of one group said, domain by domain."""
        found: list[Value] = []
        start = 0
        for domain in self._domains:
            size = len(domain.files)
            at = start + group * size
            found += self._values[at : at + size]
            start += self._groups * size
        return found

    def column(self, position: int) -> Sequence[Value]:
        """What one file of every group said.

        :param position: of the file among a group's.
        """
        start = 0
        for domain in self._domains:
            size = len(domain.files)
            if position < size:
                break
            position -= size
            start += self._groups * size
        return self._values[start + position : start + self._groups * size : size]

    def moments_of(self, cache: int) -> Sequence[float]:
        """When every group was read on a cache."""
        (number,) = (number for number, domain in enumerate(self._domains) if domain.cache == cache)
        return self._moments[number * self._groups : (number + 1) * self._groups]

    def moments(self, group: int) -> Sequence[float]:
        """When each domain of one group was read: monotonic seconds, in the order of the domains."""
        return self._moments[group :: self._groups]


def read_all(
    readers: Sequence[GroupReader],
    domains: Sequence[Domain],
    cpus: Mapping[int, int],
    give_way: Callable[[], None] | None = None,
) -> Counts:
    """Read every counter once.

    All groups' counters of one cache are read first, then those of the next cache: so the thread that reads them moves
    to each cache's CPU once.

    :param cpus: from which CPU each cache is best read (:func:`vmqos.telemetry.sweep.reading_cpus.by_cache`); from
        wherever the calling thread is where that is not known.
    :param give_way: called before each group's turn: it waits while something more urgent is to be done on resctrl.
    """
    raw: list[bytes | Missing] = []
    moments: list[float] = []
    monotonic = time.monotonic
    began = monotonic()
    with travelling() as go:
        for number, domain in enumerate(domains):
            go(None if domain.cache is None else cpus.get(domain.cache))
            for reader in readers:
                if give_way is not None:
                    give_way()
                moments.append(monotonic())
                raw += reader.read(number)
    values = whole_numbers(raw)
    some_unassigned, are_numbers = False, values is not None
    if values is None:
        values = parse_all(raw)
        some_unassigned = Missing.UNASSIGNED in values
    return Counts(began, some_unassigned, are_numbers, len(readers), domains, values, moments)
