# SPDX-License-Identifier: Apache-2.0
"""Reading the counters of all groups in one loop, cache by cache."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, repeat, starmap
from typing import Any

from vmqos.resctrl.monitoring import Missing, Value, parse_all, whole_numbers
from vmqos.telemetry.sweep.group_reader import ENOUGH, GroupReader
from vmqos.telemetry.sweep.reading_cpus import travelling
from vmqos.telemetry.sweep.shape import Domain

TURN = 16
"""Groups that are read on one cache in a row: the kernel takes a fraction of a millisecond for their counters."""

_ENOUGH, _BEGIN = repeat(ENOUGH), repeat(0)


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
        return list(self._values[group :: self._groups])

    def column(self, position: int) -> Sequence[Value]:
        """What one file of every group said.

        :param position: of the file among a group's.
        """
        return self._values[position * self._groups : (position + 1) * self._groups]

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
    :param give_way: called before the turn of some groups (:data:`TURN`): it waits while something more urgent is to be
        done on resctrl.
    """
    raw: list[bytes | Missing] = []
    moments: list[float] = []
    began = time.monotonic()
    with travelling() as go:
        for number, domain in enumerate(domains) if readers else ():
            go(None if domain.cache is None else cpus.get(domain.cache))
            moments_of, *columns = zip(*_rows(readers, number, give_way or _go_on), strict=True)
            moments += moments_of
            raw += chain.from_iterable(columns)
    values = whole_numbers(raw)
    some_unassigned, are_numbers = False, values is not None
    if values is None:
        values = parse_all(raw)
        some_unassigned = Missing.UNASSIGNED in values
    return Counts(began, some_unassigned, are_numbers, len(readers), domains, values, moments)


def _rows(readers: Sequence[GroupReader], number: int, give_way: Callable[[], None]) -> list[tuple[Any, ...]]:
    """The moment, then what each file of one domain said; for each group."""
    rows: list[tuple[Any, ...]] = []
    if all(reader.kept for reader in readers):
        # The same steps as below, without a step of the interpreter between two calls of the kernel.
        moments = starmap(time.monotonic, repeat((), len(readers)))
        columns = zip(*(reader.descriptors[number] for reader in readers), strict=True)
        steps = zip(moments, *(map(os.pread, of_file, _ENOUGH, _BEGIN) for of_file in columns), strict=True)
        with suppress(OSError):
            for _ in range(0, len(readers), TURN):
                give_way()
                rows += islice(steps, TURN)
    for at in range(len(rows), len(readers)):
        if at % TURN == 0:
            give_way()
        rows.append((time.monotonic(), *readers[at].read(number)))
    return rows


def _go_on() -> None:
    """Nothing is more urgent."""
