# SPDX-License-Identifier: Apache-2.0
"""The bandwidth of what is in no VM's group: the host's own tasks, classes, and other programs' groups. Pure."""

from __future__ import annotations

from vmqos.local_api import contract
from vmqos.telemetry.model import MBM_TOTAL

LONGEST = 60.0
"""Seconds between two looks, at most: the mean of a longer time would not be of now."""


class Rest:
    """What is known of it after some of the agent's looks.

    :ivar value: bytes a second between the last two looks; ``None`` where that is not known.
    """

    def __init__(self) -> None:
        self.value: float | None = None
        self._before: contract.Telemetry | None = None

    def hear(self, told: contract.Telemetry) -> float | None:
        """Take a look, which may be the one before, and tell the bandwidth."""
        before = self._before
        if before is None or told["taken_at"] != before["taken_at"]:
            self.value = None if before is None else rate_between(before, told)
            self._before = told
        return self.value


def rate_between(before: contract.Telemetry, now: contract.Telemetry) -> float | None:
    """Bytes a second between two looks; ``None`` where a counter has no value, or the agent is an earlier one."""
    seconds = now["taken_at"] - before["taken_at"]
    groups, groups_before = now["host"].get("groups", {}), before["host"].get("groups", {})
    # What a group did before it was seen the first time is not known.
    seen = [name for name in groups.keys() & groups_before if _is_same(groups[name], groups_before[name])]
    if not 0 < seconds <= LONGEST or not seen:
        return None
    moved = 0.0
    for name in seen:
        group, then = groups[name], groups_before[name]
        for cache, counts in group["caches"].items():
            count, earlier = counts[MBM_TOTAL], then["caches"].get(cache, {}).get(MBM_TOTAL)
            if count is None or earlier is None:
                return None
            # Where a VM ends, the kernel takes what it moved out of the default group's counters.
            moved += max(0.0, count - earlier)
    return moved / seconds


def _is_same(group: contract.GroupTelemetry, then: contract.GroupTelemetry) -> bool:
    return group["generation"] == then["generation"]
