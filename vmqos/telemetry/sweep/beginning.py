# SPDX-License-Identifier: Apache-2.0
"""What packages had counted for an RMID before its group was first read: an earlier group's, which is no VM's affair.

The kernel does not let these counters begin anew with a group (:mod:`vmqos.resctrl.monitoring`), so they do here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from vmqos.resctrl.monitoring import Missing, Value


class Beginning:
    """The counts that one group began with.

    :ivar since: when the first of them was read, in seconds since 1970; ``None`` before.
    """

    __slots__ = ("_counts", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        self._counts: dict[int, int | float] = {}

    def see(self, values: Sequence[Value], positions: Sequence[int]) -> None:
        """Remember what was there when the group was first read.

        :param values: the group's.
        :param positions: the packages' counters among them.
        """
        if len(self._counts) == len(positions):
            return
        for at in positions:
            value = values[at]
            if value is Missing.UNAVAILABLE:
                # The package has heard nothing of this RMID.
                value = 0
            if not isinstance(value, Missing) and at not in self._counts:
                self._counts[at] = value
                self.since = self.since if self.since is not None else time.time()

    def after(self, values: Sequence[Value]) -> Sequence[Value]:
        """The group's values without what its packages had counted before."""
        if not self._counts:
            return values
        found = list(values)
        for at, before in self._counts.items():
            value = found[at]
            if not isinstance(value, Missing):
                found[at] = max(value - before, 0)
        return found
