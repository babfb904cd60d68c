# SPDX-License-Identifier: Apache-2.0
"""Carrying out what :mod:`vmqos.agent.act.monitoring_plan` decides, and going on where the kernel refuses."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from vmqos.agent.act import monitoring_plan
from vmqos.agent.act.monitoring_plan import Create, Move, Remove, Step
from vmqos.agent.act.move_tasks import TaskGroup, TaskGroups
from vmqos.agent.courtesy import LockShare
from vmqos.daemon.backoff import Backoff
from vmqos.group_names import vm_group, vm_of
from vmqos.host.resctrl_state import ResctrlState
from vmqos.reason import of_error
from vmqos.resctrl import exceptions, groups
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

MAKING = 0.6
"""The part of a pass's share of the lock in which monitoring groups are made; the next pass makes the others."""

YET_TO_BE_MADE = "its monitoring group is yet to be made"


@dataclass(frozen=True, slots=True)
class Arranged:
    """The monitoring groups of all VMs as they are now.

    :ivar unmonitored: why a VM has no monitoring group, by UUID.
    :ivar there: the directories of all monitoring groups, also of other programs' groups.
    :ivar fresh: the directories of the groups that are new and have no tasks yet.
    :ivar stale: groups to be removed once their tasks are elsewhere.
    :ivar later: UUIDs of VMs whose groups are left to the next pass, because this one has no more time for them.
    """

    unmonitored: Mapping[str, str]
    there: frozenset[str]
    fresh: frozenset[str]
    stale: tuple[Remove, ...]
    later: frozenset[str] = frozenset()

    def target(self, uuid: str, control: str) -> TaskGroup:
        """Where the tasks of a VM belong if all of them have their ways from this control group."""
        monitored = TaskGroup(control, vm_group(uuid))
        return monitored if monitored.directory in self.there else TaskGroup(control)

    def aim(self, uuid: str, control: str, threads: frozenset[int] | None) -> TaskGroups:
        """Where the tasks of a VM belong if only some of its threads have their ways from this control group.

        :param threads: the ids of these threads; ``None``: all of its tasks have their ways from the control group.
        """
        target = self.target(uuid, control)
        return (
            TaskGroups(target) if threads is None or not control else TaskGroups(target, threads, self.target(uuid, ""))
        )


class MonitoringGroups:
    """Makes, moves and removes the VMs' monitoring groups.

    :param filesystem: resctrl.
    :param backoff: failures, by ``("monitoring", uuid)``.
    """

    def __init__(self, filesystem: Filesystem, backoff: Backoff) -> None:
        self._filesystem = filesystem
        self._backoff = backoff
        self._can_rename = True
        self._given_up: dict[str, str] = {}

    def make_room(self, now: ResctrlState, created: Sequence[str], candidates: Sequence[str]) -> None:
        """Give up monitoring groups where no RMID is left for control groups.

        The kernel gives out an RMID again only when the caches hold few lines of it any more. It looks once a second.

        :param created: the names of the control groups that are about to be made.
        :param candidates: UUIDs of the VMs whose monitoring groups may be given up, the first one first.
        """
        for step, group in monitoring_plan.give_up(now, created, candidates):
            LOG.info("no RMID is left for %s: VM %s gives up its monitoring group", group, _uuid_of(step))
            if not self._try(step):
                self._given_up[_uuid_of(step)] = group

    def arrange(
        self,
        now: ResctrlState,
        controls: Mapping[str, str],
        unseen: Set[str],
        parted: Set[str],
        left: Mapping[str, str],
        share: LockShare,
    ) -> Arranged:
        """Make and move the monitoring groups that VMs need, and name those that they no longer need.

        :param controls: the control group of each VM by UUID, in order of arrival; the default group is "".
        :param unseen: UUIDs of VMs that run and could not be looked at: their groups stay.
        :param parted: UUIDs of VMs of which some tasks are in the default group, even if they have a control group.
        :param left: the control groups that VMs have left for a while, by UUID. The VM's monitoring group stays there:
            it counts what the VM brought in before, and still finds.
        :param share: the time that this pass has.
        """
        wanted = [
            (uuid, control)
            for uuid, own in controls.items()
            for control in dict.fromkeys((own, *([""] if uuid in parted and own else []), left.get(uuid, own)))
            if control != vm_group(uuid)
        ]
        plan = monitoring_plan.plan(now, wanted)
        self._given_up = {uuid: group for uuid, group in self._given_up.items() if uuid in plan.without}
        unmonitored = {uuid: self._with_its_cause(uuid, reason) for uuid, reason in plan.without.items()}
        there = {
            TaskGroup(control, name).directory for control, names in now.monitoring_groups.items() for name in names
        }
        fresh = set()
        left_alone = {vm_group(uuid) for uuid in unseen}
        stale = [step for step in plan.stale if step.name not in left_alone]
        busy = {step.name for step in (*plan.steps, *plan.stale)}
        for uuid in controls:
            if vm_group(uuid) not in busy:
                self._backoff.succeed(("monitoring", uuid))
        later = set[str]()
        for number, step in enumerate(plan.steps):
            if number and share.is_over(MAKING):
                later.add(_uuid_of(step))
                unmonitored[_uuid_of(step)] = YET_TO_BE_MADE
                continue
            error = self._try(step)
            if error and isinstance(step, Move) and not self._can_rename:
                # The VM's counters begin anew, which is better than none.
                stale.append(Remove(step.name, step.source))
                step = Create(step.name, step.target)
                self._backoff.succeed(("monitoring", _uuid_of(step)))
                error = self._try(step)
            if error:
                unmonitored[_uuid_of(step)] = error
            elif isinstance(step, Create):
                fresh.add(TaskGroup(step.control, step.name).directory)
            else:
                there.add(TaskGroup(step.target, step.name).directory)
        return Arranged(unmonitored, frozenset(there | fresh), frozenset(fresh), tuple(stale), frozenset(later))

    def make_early(self, now: ResctrlState, uuid: str, control: str) -> TaskGroup:
        """Where the tasks of a VM belong that is only being started: its monitoring group is made if it can be.

        :param control: its control group.
        """
        step = Create(vm_group(uuid), control)
        is_there = step.name in now.monitoring_groups.get(control, ())
        if control != step.name and (is_there or (monitoring_plan.spare_rmids(now) > 0 and not self._try(step))):
            return TaskGroup(control, step.name)
        return TaskGroup(control)

    def remove(self, stale: Iterable[Remove]) -> set[str]:
        """Remove groups that no VM needs any more; a later pass tries again where that fails.

        :returns: the directories of those that are gone.
        """
        return {TaskGroup(step.control, step.name).directory for step in stale if not self._try(step)}

    def _with_its_cause(self, uuid: str, reason: str) -> str:
        """The reason why a VM has no monitoring group, with the promise for which the group was given up, if any."""
        group = self._given_up.get(uuid)
        if group is None:
            return reason
        owner = vm_of(group)
        whom = f"the class {group}" if owner is None else f"VM {owner}"
        return monitoring_plan.GIVEN_UP.format(whom=whom, rest=reason)

    def _try(self, step: Step) -> str:
        """Carry out one step, unless it failed a short time ago; return the error, empty where there is none."""
        key = ("monitoring", _uuid_of(step))
        failure = self._backoff.get(key)
        if failure is not None and self._backoff.waits(key):
            return failure.reason.text
        try:
            _carry_out(self._filesystem, step)
        except exceptions.ResctrlError as error:
            if isinstance(step, Move) and getattr(error, "errno_name", "") == "EPERM":
                LOG.info("this kernel does not rename monitoring groups; Linux does from 6.5 on")
                self._can_rename = False
            self._backoff.fail(key, of_error(error))
            return str(error)
        self._backoff.succeed(key)
        return ""


def _carry_out(filesystem: Filesystem, step: Step) -> None:
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


def _uuid_of(step: Step) -> str:
    return vm_of(step.name) or step.name
