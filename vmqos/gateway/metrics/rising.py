# SPDX-License-Identifier: Apache-2.0
"""Counters that are differences of others, as counters that never go back."""

from __future__ import annotations

from collections.abc import Mapping

Key = tuple[str, ...]


class RisingCounters:
    """Holds each at the most that it was.

    What is subtracted is read at another moment, and the group that it is of may end first. A monitoring system takes a
    counter that went back for one that began anew, and would show the whole of it as a burst.

    :param from_zero: whether each begins at 0, because what it had counted when it is first seen may be of others.
    :ivar highest: the most that each was, by whatever tells it from all others.
    """

    def __init__(self, *, from_zero: bool = False) -> None:
        self._from_zero = from_zero
        self.highest: dict[Key, float] = {}
        self._first: dict[Key, float] = {}

    def update(self, now: Mapping[Key, float | None]) -> Mapping[Key, float]:
        """The counters where there are numbers; those that are not asked for any more are forgotten.

        :param now: what each is now, by whatever tells it from all others.
        """
        found, highest, first = {}, {}, {}
        for key, value in now.items():
            known = self.highest.get(key, 0.0)
            if value is not None:
                known = max(value, known)
                began = first[key] = self._first.get(key, value) if self._from_zero else 0.0
                found[key] = known - began
            elif key in self._first:
                first[key] = self._first[key]
            highest[key] = known
        self.highest, self._first = highest, first
        return found
