# SPDX-License-Identifier: Apache-2.0
"""Carrying out a plan on the control groups, one write after the other, and noting the VMs that a refusal concerns."""

from __future__ import annotations

import logging
import math
from collections.abc import Container, Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, replace

from vmqos.allocation import (
    Allocation,
    CreateGroup,
    Group,
    Layout,
    Plan,
    RemoveGroup,
    SetExclusive,
    Step,
    WriteMasks,
    WriteThrottles,
    caches,
)
from vmqos.daemon.backoff import Backoff
from vmqos.group_names import owner_of
from vmqos.reason import of_error
from vmqos.resctrl import exceptions, groups, schemata
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

LIMBO = 1.0
"""Seconds between two looks of the kernel at RMIDs that were given back (``CQM_LIMBOCHECK_INTERVAL``). Where no RMID is
free yet for a group, the agent tries again as often."""

_LEVELS = (3, 2)


@dataclass(frozen=True, slots=True)
class StepFailed:
    """A step of a plan failed. The steps before it are in force, the steps after it were not tried."""

    step: Step
    error: exceptions.ResctrlError


class ControlGroups:
    """Carries out plans.

    :param filesystem: resctrl.
    :param backoff: failures, by VM UUID.
    """

    def __init__(self, filesystem: Filesystem, backoff: Backoff) -> None:
        self._filesystem = filesystem
        self._backoff = backoff
        self._unguarded: set[str] = set()

    def forget(self) -> None:
        """Let the next plan ask the kernel again for the mode ``exclusive`` where the kernel has refused it."""
        self._unguarded.clear()

    def without_refused(self, plan: Plan) -> Plan:
        """The plan without the modes ``exclusive`` that the kernel refused and would refuse again."""
        kept = (
            step
            for step in plan.prepare
            if not (isinstance(step, SetExclusive) and step.exclusive and step.group in self._unguarded)
        )
        return replace(plan, prepare=tuple(kept))

    def execute(self, steps: Iterable[Step]) -> StepFailed | None:
        """Carry out the steps in order; the caller holds the exclusive lock.

        If the kernel refuses its mode ``exclusive``, that is no failure: the masks keep the promise without it.

        :returns: the step that failed, if one did; the steps after it were not tried.
        """
        for step in steps:
            try:
                match step:
                    case CreateGroup(group):
                        groups.create(self._filesystem, group)
                    case WriteMasks(group):
                        groups.write_lines(self._filesystem, group, *lines(step))
                    case WriteThrottles(group, throttles):
                        groups.write_values(self._filesystem, group, "MB", throttles)
                    case SetExclusive(group, exclusive):
                        groups.set_mode(self._filesystem, group, "exclusive" if exclusive else "shareable")
                    case RemoveGroup(group):
                        groups.remove(self._filesystem, group)
            except exceptions.ResctrlError as error:
                if isinstance(step, SetExclusive) and step.exclusive:
                    LOG.warning("the kernel does not guard %s: %s", step.group, error)
                    self._unguarded.add(step.group)
                    continue
                LOG.error("%s: %s", describe(step), error)
                return StepFailed(step, error)
            # A step is logged once it is done: no VM waits for the words, and a step that fails is logged as an error.
            LOG.info("%s", describe(step))
        return None

    def blame(
        self, plan: Plan, in_force: Mapping[str, Allocation], failure: StepFailed, waiting: Container[Hashable]
    ) -> bool:
        """Note the failure for each VM of the step's group that lacks something now; if none does, for all such VMs.

        If these were left as they are already, and the step failed all the same, it moves their class for the sake of
        others. Then it is noted for those that are to get most, half of all that get something new: so passes one
        after the other find out soon who can be served without that step.

        :param in_force: the part of its allocation that each VM really has now, by UUID.
        :param waiting: UUIDs of the VMs that this plan left as they are, because something had failed for them.
        :returns: whether a pass that leaves these VMs as they are gets further. Where this one did so already, it
            gets no further.
        """
        lacking = {uuid for uuid, given in in_force.items() if given is not plan.allocations[uuid]}
        concerned = {uuid for uuid in lacking if plan.allocations[uuid].group == failure.step.group != ""}
        fresh = {uuid for uuid in lacking if uuid not in waiting}
        blamed: Set[str] = concerned or lacking
        if concerned and fresh and not concerned & fresh:
            blamed = _those_of_most(plan, fresh)
        at_most = LIMBO if isinstance(failure.error, exceptions.RmidsInLimbo) else math.inf
        for uuid in blamed:
            self._backoff.fail(uuid, of_error(failure.error), at_most)
        return bool(blamed & fresh)

    def retire(self, plan: Plan, in_force: Mapping[str, Allocation]) -> bool:
        """Remove the groups that no VM needs, unless a VM is in another group than planned.

        :returns: whether all of them were removed.
        """
        if any(given.group != plan.allocations[uuid].group for uuid, given in in_force.items()):
            return False
        return self.execute(plan.retire) is None


def _those_of_most(plan: Plan, uuids: Set[str]) -> Set[str]:
    """The VMs of that half of their groups which is to get most ways of all caches together; of one group its VMs."""
    ways = {
        given.group: sum(mask.count for mask in given.masks.values())
        for given in map(plan.allocations.__getitem__, uuids)
    }
    most = sorted(ways, key=lambda group: (-ways[group], group))[: (len(ways) + 1) // 2]
    return {uuid for uuid in uuids if plan.allocations[uuid].group in most}


def created(plan: Plan) -> set[str]:
    """The names of the control groups that the plan creates."""
    return {step.group for step in plan.prepare if isinstance(step, CreateGroup)}


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
