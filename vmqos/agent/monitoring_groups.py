# SPDX-License-Identifier: Apache-2.0
"""Carrying out what :mod:`vmqos.agent.monitoring` decides, and going on where the kernel refuses."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from vmqos.agent import act, monitoring
from vmqos.agent.backoff import Backoff
from vmqos.agent.placement import Aim, Target
from vmqos.agent.view import ResctrlView
from vmqos.allocation import vm_group
from vmqos.resctrl import exceptions
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Arranged:
    """The monitoring groups of all VMs as they are now.

    :ivar unmonitored: why VMs have none, by UUID.
    :ivar there: the directories of all monitoring groups, those of others too.
    :ivar fresh: those of them that are new and have no tasks yet.
    :ivar stale: groups to be removed once their tasks are elsewhere.
    """

    unmonitored: Mapping[str, str]
    there: frozenset[str]
    fresh: frozenset[str]
    stale: tuple[monitoring.Remove, ...]

    def target(self, uuid: str, control: str) -> Target:
        """Where the tasks of a VM belong that has its ways from this control group."""
        monitored = Target(control, vm_group(uuid))
        return monitored if monitored.directory in self.there else Target(control)

    def aim(self, uuid: str, control: str, vcpus: frozenset[int] | None) -> Aim:
        """The same for a VM some of whose vCPUs alone have their ways from it.

        :param vcpus: which; ``None``: all of its tasks do.
        """
        target = self.target(uuid, control)
        return Aim(target) if vcpus is None or not control else Aim(target, vcpus, self.target(uuid, ""))


class MonitoringGroups:
    """Makes, moves and removes the VMs' monitoring groups.

    :param filesystem: resctrl.
    :param backoff: failures, by ``("monitoring", uuid)``.
    """

    def __init__(self, filesystem: Filesystem, backoff: Backoff) -> None:
        self._filesystem = filesystem
        self._backoff = backoff
        self._can_rename = True

    def arrange(
        self, now: ResctrlView, controls: Mapping[str, str], unseen: Set[str], parted: Set[str] = frozenset()
    ) -> Arranged:
        """Make and move what VMs need; what they no longer need is only named.

        :param controls: the control group of each VM by UUID, those that came first in front; the default group is "".
        :param unseen: UUIDs of VMs that run and could not be looked at: their groups stay.
        :param parted: UUIDs of VMs some of whose tasks are in the default group, whatever their control group is.
        """
        wanted = [
            (uuid, control)
            for uuid, own in controls.items()
            for control in ((own, "") if uuid in parted and own else (own,))
            if control != vm_group(uuid)
        ]
        plan = monitoring.plan(now, wanted)
        unmonitored = dict(plan.without)
        there = {Target(control, name).directory for control, names in now.monitoring_groups.items() for name in names}
        fresh = set()
        left_alone = {vm_group(uuid) for uuid in unseen}
        stale = [step for step in plan.stale if step.name not in left_alone]
        busy = {step.name for step in (*plan.steps, *plan.stale)}
        for uuid in controls:
            if vm_group(uuid) not in busy:
                self._backoff.succeed(("monitoring", uuid))
        for step in plan.steps:
            error = self._try(step)
            if error and isinstance(step, monitoring.Move) and not self._can_rename:
                # The VM's counters begin anew, which is better than none.
                stale.append(monitoring.Remove(step.name, step.source))
                step = monitoring.Create(step.name, step.target)
                self._backoff.succeed(("monitoring", _uuid_of(step)))
                error = self._try(step)
            if error:
                unmonitored[_uuid_of(step)] = error
            elif isinstance(step, monitoring.Create):
                fresh.add(Target(step.control, step.name).directory)
            else:
                there.add(Target(step.target, step.name).directory)
        return Arranged(unmonitored, frozenset(there | fresh), frozenset(fresh), tuple(stale))

    def remove(self, stale: Iterable[monitoring.Remove]) -> None:
        """Remove groups that no VM needs any more; what fails is tried again by a later pass."""
        for step in stale:
            self._try(step)

    def _try(self, step: monitoring.Move | monitoring.Create | monitoring.Remove) -> str:
        """Carry out one step, unless it failed a short time ago; the error, if there is one."""
        key = ("monitoring", _uuid_of(step))
        failure = self._backoff.get(key)
        if failure is not None and self._backoff.waits(key):
            return failure.error
        try:
            act.change_monitoring(self._filesystem, step)
        except exceptions.ResctrlError as error:
            if isinstance(step, monitoring.Move) and getattr(error, "errno_name", "") == "EPERM":
                LOG.info("this kernel does not rename monitoring groups; Linux does from 6.5 on")
                self._can_rename = False
            self._backoff.fail(key, str(error))
            return str(error)
        self._backoff.succeed(key)
        return ""


def _uuid_of(step: monitoring.Move | monitoring.Create | monitoring.Remove) -> str:
    return step.name.removeprefix(vm_group(""))
