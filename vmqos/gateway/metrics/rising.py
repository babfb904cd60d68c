# SPDX-License-Identifier: Apache-2.0
"""Counters that are differences of others, as counters that never go back."""

from __future__ import annotations

from collections.abc import Mapping

Key = tuple[str, ...]


class RisingCounters:
    """Holds each at the most that it was.

    What is subtracted is read at another moment, and the group that it is of may end first. A monitoring system takes a
    counter that went back for one that began anew, and would show the whole of it as a burst.
    """

    def __init__(self) -> None:
        self._highest: dict[Key, float] = {}

    def update(self, now: Mapping[Key, float | None]) -> Mapping[Key, float]:
        """The counters where there are numbers; those that are not asked for any more are forgotten.

        :param now: what each is now, by whatever tells it from all others.
        """
        found, highest = {}, {}
        for key, value in now.items():
            known = self._highest.get(key, 0.0)
            if value is not None:
                known = found[key] = max(value, known)
            highest[key] = known
        self._highest = highest
        return found
