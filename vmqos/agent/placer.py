# SPDX-License-Identifier: Apache-2.0
"""Which VMs' tasks have to be placed in this pass, and which tasks are left where somebody else put them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set

from vmqos.agent import placement, view
from vmqos.agent.backoff import Backoff
from vmqos.agent.inventory import ObservedVm
from vmqos.agent.placement import Placed, Target
from vmqos.agent.strays import StrayWatch
from vmqos.agent.view import ResctrlView
from vmqos.allocation import Owner, owner_of
from vmqos.hypervisor import vm_tasks
from vmqos.hypervisor.exceptions import HypervisorError, ProcessVanished
from vmqos.resctrl import exceptions, tasks
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)


class Placer:
    """Knows where the VMs' tasks were found last, so that only what changed is looked at.

    :param filesystem: resctrl.
    :param backoff: failures, by ``("tasks", uuid)``.
    """

    def __init__(self, filesystem: Filesystem, backoff: Backoff) -> None:
        self._filesystem = filesystem
        self._backoff = backoff
        self._strays = StrayWatch()
        self._placed: dict[str, Placed] = {}

    @property
    def placed(self) -> Mapping[str, Placed]:
        """What was found when the VMs' tasks were last looked at, by UUID."""
        return self._placed

    def forget(self) -> None:
        """Take nothing from earlier passes for granted."""
        self._placed.clear()
        self._strays.forget()

    def strays(self, vms: Mapping[str, ObservedVm]) -> set[str]:
        """UUIDs of the VMs that have tasks in the default group and should not; VMs that are gone are forgotten.

        :raises vmqos.resctrl.exceptions.ResctrlError: if the default group can't be read.
        """
        for uuid in self._placed.keys() - vms.keys():
            del self._placed[uuid]
        return self._strays.look(self._filesystem, self._placed, vms)

    def place(
        self,
        now: ResctrlView,
        targets: Mapping[str, Target],
        look_at: Set[str],
        vms: Mapping[str, ObservedVm],
        fresh: Set[str],
    ) -> None:
        """Put the tasks of those VMs where they belong that need it; the caller holds the exclusive lock.

        :param targets: where the tasks of each VM belong, by UUID, those that came first in front.
        :param look_at: UUIDs of VMs whose tasks may have changed.
        :param fresh: directories that are new, so that no task is in them.
        """
        due = [
            uuid
            for uuid, target in targets.items()
            if not self._backoff.waits(("tasks", uuid))
            and (
                uuid in look_at
                or uuid not in self._placed
                or self._placed[uuid].target != target
                or target.directory in fresh
                or self._backoff.get(("tasks", uuid)) is not None
            )
        ]
        foreign, watched = self._foreign_tasks(now) if due else (set(), set())
        # Many VMs may have the same target; whoever reads a tasks file has the kernel go through all tasks of the host.
        there: dict[str, set[int]] = {directory: set() for directory in fresh}
        for uuid in due:
            target = targets[uuid]
            left_alone = foreign if target.control else foreign | watched
            self._place_one(vms[uuid], target, left_alone, there)

    def _place_one(self, observed: ObservedVm, target: Target, foreign: set[int], there: dict[str, set[int]]) -> None:
        vm, directory = observed.vm, target.directory
        try:
            with vm_tasks.lister(vm) as list_own:

                def list_tasks() -> set[int]:
                    return list_own() | self._strays.kernel_threads(vm.uuid)

                if directory not in there:
                    there[directory] = tasks.read_tasks(self._filesystem, directory)
                self._placed[vm.uuid] = placement.place(self._filesystem, target, list_tasks, foreign, there[directory])
            self._backoff.succeed(("tasks", vm.uuid))
        except ProcessVanished:
            LOG.debug("VM %s has ended", vm.uuid)
        except (HypervisorError, OSError) as error:
            LOG.info("the tasks of VM %s can't be listed now: %s", vm.uuid, error)
        except exceptions.ResctrlError as error:
            self._backoff.fail(("tasks", vm.uuid), str(error))
            LOG.error("tasks of VM %s can't be moved to %s: %s", vm.uuid, target.directory or "/", error)

    def _foreign_tasks(self, now: ResctrlView) -> tuple[set[int], set[int]]:
        """The tasks in control groups that others made, and those in their monitoring groups inside of ours."""
        foreign, watched = set[int](), set[int]()
        for group in now.layout.groups:
            if group.owner is Owner.FOREIGN:
                if now.modes.get(group.name) != view.PSEUDO_LOCKED:
                    foreign |= self._read_foreign(group.name)
                continue
            for name in now.monitoring_groups.get(group.name, ()):
                if owner_of(name) is not Owner.VM:
                    watched |= self._read_foreign(Target(group.name, name).directory)
        return foreign, watched

    def _read_foreign(self, directory: str) -> set[int]:
        try:
            return tasks.read_tasks(self._filesystem, directory)
        except exceptions.ResctrlError as error:
            LOG.info("the tasks of the foreign group %s can't be read: %s", directory, error)
            return set()
