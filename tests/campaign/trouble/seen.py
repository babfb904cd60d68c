# SPDX-License-Identifier: Apache-2.0
"""The groups of a simulated machine as its hardware has them: no file of resctrl is read for that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vmqos.simulator.machine import Machine
from vmqos.simulator.state import Group

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


def groups(machine: Machine) -> dict[str, Seen]:
    """All control groups by name; none while resctrl is not mounted."""
    return {group.directory.name: _seen(machine, group) for group in _control_groups(machine)}


def group_of(machine: Machine, tid: int) -> str:
    """The name of the control group of a task; empty for the default group."""
    closid, _ = machine.hardware.members.of(tid)
    return next((group.directory.name for group in _control_groups(machine) if group.closid == closid), "")


def reach(machine: Machine, cpus: frozenset[int]) -> set[Cache]:
    """The L3s that tasks on these CPUs fill, as far as the CPUs are online."""
    caches, online = machine.hardware.profile.topology.l3, machine.hardware.online
    return {(3, cache.id) for cache in caches if cache.cpus & cpus & online}


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
