# SPDX-License-Identifier: Apache-2.0
"""A mapping whose values are made one by one when the caller looks at them: a sweep reads more than is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class LazyMapping(Mapping[K, V]):
    """The mapping from each key to ``make(key, source)``, made at the first look. As immutable as its values are.

    :param sources: what each value is made of, in the order of the keys.
    :param make: pure; two threads may call it at once.
    """

    __slots__ = ("_made", "_make", "_sources")

    def __init__(self, sources: Mapping[K, T], make: Callable[[K, T], V]) -> None:
        self._sources = sources
        self._make = make
        self._made: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._make(key, self._sources[key])
        return made

    def __iter__(self) -> Iterator[K]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, key: object) -> bool:
        return key in self._sources

    def __repr__(self) -> str:
        return repr(dict(self))
