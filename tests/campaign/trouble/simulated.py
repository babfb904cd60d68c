# SPDX-License-Identifier: Apache-2.0
"""The groups of a simulated machine as its hardware has them: no file of resctrl is read for that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.campaign.trouble.seen import Cache, Seen
from vmqos.simulator.files.state import Group
from vmqos.simulator.machine import Machine


@dataclass(frozen=True, slots=True)
class SimulatedHardware:
    """See :class:`tests.campaign.trouble.seen.Hardware`."""

    machine: Machine

    def groups(self) -> dict[str, Seen]:
        """All control groups by name; none while resctrl is not mounted."""
        return {group.directory.name: _seen(self.machine, group) for group in _control_groups(self.machine)}

    def group_of(self, tid: int) -> str:
        """The name of the control group of a task; empty for the default group.

        A thread that was born this moment is known already.
        """
        self.machine.hardware.members.settle()
        closid, _ = self.machine.hardware.members.of(tid)
        return next((group.directory.name for group in _control_groups(self.machine) if group.closid == closid), "")

    def reach(self, cpus: frozenset[int]) -> set[Cache]:
        """The L3s that tasks on these CPUs fill, as far as the CPUs are online."""
        caches, online = self.machine.hardware.profile.topology.l3, self.machine.hardware.online
        return {(3, cache.id) for cache in caches if cache.cpus & cpus & online}

    def is_alive(self, tid: int) -> bool:
        """Whether there is such a task."""
        return self.machine.hardware.processes.alive(tid)

    @property
    def fewest_ways(self) -> int:
        """The fewest ways of an L3 that a group can have; 0 where L3s can't be parted."""
        l3 = self.machine.hardware.profile.l3
        return 0 if l3 is None else max(1, l3.min_cbm_bits)


def _control_groups(machine: Machine) -> list[Group]:
    return machine.mounted.groups if machine.is_mounted else []


def _seen(machine: Machine, group: Group) -> Seen:
    mounted, members = machine.mounted, machine.hardware.members
    parts, limits = dict[Cache, dict[str, int]](), dict[int, int]()
    for schema in mounted.schemas:
        for domain in schema.resource.domains:
            value = schema.resource.value(domain, group.closid, schema.use)
            if schema.resource.cache is not None:
                parts.setdefault((schema.resource.cache.level, domain.id), {})[schema.use.value] = value
            elif schema.name == "MB":
                limits[domain.id] = value
    masks = {cache: _union(values.values()) for cache, values in parts.items()}
    tasks = frozenset(
        tid for (closid, _), tids in members._tids.items() if closid == group.closid and group.closid for tid in tids
    )
    names = tuple(child.directory.name for child in group.children)
    return Seen(masks, parts, limits, tasks, frozenset(group.cpus), names)


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found
