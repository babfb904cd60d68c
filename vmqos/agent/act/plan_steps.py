# SPDX-License-Identifier: Apache-2.0
"""Carrying out a plan's steps on resctrl, one write after the other."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from vmqos.agent.act.monitoring_plan import Create, Move, Remove
from vmqos.allocation import (
    CreateGroup,
    Group,
    Layout,
    RemoveGroup,
    SetExclusive,
    Step,
    WriteMasks,
    WriteThrottles,
    caches,
)
from vmqos.group_names import owner_of
from vmqos.resctrl import exceptions, groups, schemata
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

_LEVELS = (3, 2)


class StepFailed(Exception):
    """A step of a plan failed. The steps before it are in force, the steps after it were not tried."""

    def __init__(self, step: Step, error: exceptions.ResctrlError) -> None:
        super().__init__(str(error))
        self.step = step
        self.error = error
        self.code = error.code


def describe(step: Step) -> str:
    """One step in words for the operator."""
    match step:
        case CreateGroup(group):
            return f"create the control group {group}"
        case WriteMasks(group, masks, splits):
            told = f"give {group or 'the default group'} the {_ways(masks)}"
            apart = {cache: parts for cache, parts in splits.items() if parts.code != parts.data}
            code = {cache: parts.code for cache, parts in apart.items()}
            data = {cache: parts.data for cache, parts in apart.items()}
            return f"{told} (code: {_ways(code)}; data: {_ways(data)})" if apart else told
        case WriteThrottles(group, throttles):
            return f"limit the memory bandwidth of {group} to {schemata.format_values('MB', throttles)}"
        case SetExclusive(group, exclusive):
            return f"make {group} {'exclusive' if exclusive else 'shareable'} in the kernel"
        case RemoveGroup(group):
            return f"remove the control group {group}"


def _ways(masks: Mapping[int, CapacityBitmask]) -> str:
    levels = [(level, caches.of_level(level, masks)) for level in _LEVELS]
    lines = [schemata.format_values(f"L{level}", found) for level, found in levels if found]
    return " and the ".join(line.replace(":", " ways ", 1) for line in lines)


def lines(step: WriteMasks) -> list[str]:
    """The lines of schemata that set these masks; pure."""
    found = []
    for level in _LEVELS:
        splits = caches.of_level(level, step.splits)
        kinds = {"": caches.of_level(level, step.masks)}
        if splits:
            code = {cache: parts.code for cache, parts in splits.items()}
            kinds = {"CODE": code, "DATA": {cache: parts.data for cache, parts in splits.items()}}
        found += [schemata.format_values(f"L{level}{kind}", masks) for kind, masks in kinds.items() if masks]
    return found


def execute(filesystem: Filesystem, steps: Iterable[Step]) -> set[str]:
    """Carry out the steps in order; the caller holds the exclusive lock.

    If the kernel refuses its mode ``exclusive``, that is no failure: the masks keep the promise without it.

    :returns: the groups for which the kernel refused that mode.
    :raises vmqos.agent.act.plan_steps.StepFailed: at the first step that fails.
    """
    unguarded = set()
    for step in steps:
        LOG.info("%s", describe(step))
        try:
            match step:
                case CreateGroup(group):
                    groups.create(filesystem, group)
                case WriteMasks(group):
                    groups.write_lines(filesystem, group, *lines(step))
                case WriteThrottles(group, throttles):
                    groups.write_values(filesystem, group, "MB", throttles)
                case SetExclusive(group, exclusive):
                    groups.set_mode(filesystem, group, "exclusive" if exclusive else "shareable")
                case RemoveGroup(group):
                    groups.remove(filesystem, group)
        except exceptions.ResctrlError as error:
            if isinstance(step, SetExclusive) and step.exclusive:
                LOG.warning("the kernel does not guard %s: %s", step.group, error)
                unguarded.add(step.group)
                continue
            raise StepFailed(step, error) from error
    return unguarded


def predict(layout: Layout, steps: Iterable[Step]) -> Layout:
    """The layout that the steps lead to if they succeed; resctrl is not read; pure."""
    groups_then = {group.name: group for group in layout.groups}
    for step in steps:
        match step:
            case CreateGroup(name):
                groups_then[name] = Group(name, owner_of(name), {})
            case WriteMasks(name, masks, splits):
                before = groups_then[name]
                groups_then[name] = replace(before, masks={**before.masks, **masks}, splits={**before.splits, **splits})
            case WriteThrottles(name, throttles):
                limits = {**groups_then[name].throttles, **throttles}
                groups_then[name] = replace(groups_then[name], throttles=limits)
            case SetExclusive(name, exclusive):
                groups_then[name] = replace(groups_then[name], exclusive=exclusive)
            case RemoveGroup(name):
                del groups_then[name]
    return Layout(tuple(groups_then.values()))


def change_monitoring(filesystem: Filesystem, step: Move | Create | Remove) -> None:
    """Carry out one change of a monitoring group; the caller holds the exclusive lock.

    :raises vmqos.resctrl.exceptions.ResctrlError: if the kernel refuses.
    """
    match step:
        case Move(name, source, target):
            LOG.info("move the monitoring group %s from %s to %s", name, source or "/", target or "/")
            groups.move_monitoring_group(filesystem, name, source, target)
        case Create(name, control):
            LOG.info("create the monitoring group %s in %s", name, control or "/")
            groups.create_monitoring_group(filesystem, control, name)
        case Remove(name, control):
            LOG.info("remove the monitoring group %s from %s", name, control or "/")
            groups.remove_monitoring_group(filesystem, control, name)
