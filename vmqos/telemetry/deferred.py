# SPDX-License-Identifier: Apache-2.0
"""A mapping that is made when somebody looks into it: a sweep reads a thousand counters, and few of them are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from vmqos.resctrl.monitoring import Value

K = TypeVar("K")
V = TypeVar("V")


class Deferred(Mapping[K, V]):
    """The mapping that ``make(values)`` returns, made at the first look. As immutable as that one is.

    :param make: pure; two threads may call it at once.
    """

    __slots__ = ("_made", "_make", "_values")

    def __init__(self, make: Callable[[Sequence[Value]], Mapping[K, V]], values: Sequence[Value]) -> None:
        self._make = make
        self._values = values
        self._made: Mapping[K, V] | None = None

    def __getitem__(self, key: K) -> V:
        return self._all()[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> Mapping[K, V]:
        made = self._made
        if made is None:
            made = self._made = self._make(self._values)
        return made
