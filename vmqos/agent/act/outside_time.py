# SPDX-License-Identifier: Apache-2.0
"""How much CPU time a VM's tasks have used outside of the group with the VM's ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from vmqos.agent.act.move_tasks import TaskGroups, TaskPlacement
from vmqos.hypervisor.model import Process
from vmqos.hypervisor.processes import cpu_time, cpu_time_of_all

FEW = 16
"""Tasks that are asked one by one under the lock, at most: each takes some ten microseconds."""

_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class OutsideTime:
    """The CPU time of one VM's tasks outside of its group, each task's from its birth until it was moved.

    Where a task was in place before and another program moved it, the time is not known. It is counted as what the task
    could have used at most.

    :ivar process: the VM's process.
    :ivar at_start: nanoseconds before all of its tasks were in place for the first time; ``None`` where tasks had been
        moved before the first look at the VM, by an agent that ran before this one: when they were is not known.
    :ivar later: nanoseconds since then, or since that look.
    :ivar is_settled: whether all of its tasks were in place once.
    """

    process: Process
    at_start: int | None = 0
    later: int = 0
    is_settled: bool = False

    def plus(self, placed: TaskPlacement) -> OutsideTime:
        """The times after a look at the VM's tasks has moved some."""
        settled = self.is_settled or placed.in_place == placed.tasks - placed.foreign
        if self.is_settled:
            return replace(self, later=self.later + placed.outside)
        at_start = None if self.at_start is None else self.at_start + placed.outside
        return replace(self, at_start=at_start, is_settled=settled)


def measure(
    known: OutsideTime, last: TaskPlacement | None, aim: TaskGroups, since_look: float, since_served: float
) -> Callable[[Collection[int]], int]:
    """What tells how many nanoseconds of CPU some tasks have used outside of their group, right before they are moved.

    Few tasks are asked one by one. The lock on resctrl is held meanwhile: of a crowd it is what its process has used.

    :param last: where the VM's tasks were at the last look at them; ``None`` where that is not known.
    :param aim: where they belong now.
    :param since_look: seconds since the last look at the default group that did not find the VM's tasks there.
    :param since_served: seconds since the last look at the VM's tasks.
    """

    def longest(tid: int) -> float:
        """Seconds that a task can have been outside."""
        if not known.is_settled:
            return math.inf
        if last is None:
            return since_served
        if tid not in last.in_place:
            return math.inf
        # A task that comes from the group where it belonged before was never outside.
        return since_look if (last.target, last.rest) == (aim.target, aim.rest) else 0.0

    def used(tids: Collection[int]) -> int:
        if len(tids) <= FEW:
            return sum(int(min(cpu_time(tid), longest(tid) * _SECOND)) for tid in tids)
        most = cpu_time_of_all(known.process.pid) - (known.at_start or 0) - known.later
        return int(max(0, min(most, max(map(longest, tids)) * _SECOND * len(tids))))

    return used
