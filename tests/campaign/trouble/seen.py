# SPDX-License-Identifier: Apache-2.0
"""What the judge sees of a machine, simulated or not: its control groups as the hardware has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

Cache = tuple[int, int]
"""The level of a cache, and its id."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A control group as the hardware has it.

    :ivar masks: its ways by cache, those for code and for data together.
    :ivar parts: its masks by cache and use: ``CODE`` and ``DATA``, or the empty word where both have one.
    :ivar limits: its limits of memory bandwidth by the id of the L3.
    :ivar tasks: the ids of its tasks; of the default group none.
    :ivar cpus: the CPUs whose default it is.
    :ivar monitoring: the names of the monitoring groups in it.
    """

    masks: dict[Cache, int]
    parts: dict[Cache, dict[str, int]]
    limits: dict[int, int]
    tasks: frozenset[int]
    cpus: frozenset[int]
    monitoring: tuple[str, ...] = ()


class Hardware(Protocol):
    """A machine as it really is, whatever the agent says of it."""

    def groups(self) -> dict[str, Seen]:
        """All control groups by name; none while resctrl is not mounted."""
        ...

    def group_of(self, tid: int) -> str:
        """The name of the control group of a task; empty for the default group."""
        ...

    def reach(self, cpus: frozenset[int]) -> set[Cache]:
        """The L3s that tasks on these CPUs fill, as far as the CPUs are online."""
        ...

    def is_alive(self, tid: int) -> bool:
        """Whether there is such a task."""
        ...

    @property
    def fewest_ways(self) -> int:
        """The fewest ways of an L3 that a group can have; 0 where L3s can't be parted."""
        ...
