# SPDX-License-Identifier: Apache-2.0
"""Which VMs' tasks have to be placed in this pass, in which order, and which tasks are left where others put them.

The lock on resctrl is held meanwhile, so a pass places as many as fit into its share of time. Each VM has a turn, which
ends after :data:`TURN`; a VM that is not done then is owed the rest, and comes again when the others had theirs. So no
VM, however many threads it has, keeps another one waiting.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Set

from vmqos.agent.act import move_tasks
from vmqos.agent.act.lock_share import LockShare, Pace
from vmqos.agent.act.move_tasks import TaskGroup, TaskGroups, TaskPlacement
from vmqos.agent.life.backoff import Backoff
from vmqos.agent.observe.running_vms import ERROR_LENGTH, ObservedVm, unexpected
from vmqos.agent.observe.stray_tasks import StrayWatch
from vmqos.group_names import Owner, owner_of
from vmqos.host.resctrl_state import ResctrlState
from vmqos.hypervisor import vm_tasks
from vmqos.hypervisor.exceptions import HypervisorError, ProcessVanished
from vmqos.reason import Code, Reason, of_error
from vmqos.resctrl import exceptions, groups, pseudo_lock, tasks
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

TURN = 0.02
"""Seconds after which another VM has its turn."""

PATIENCE = 1.0
"""Seconds that a VM whose tasks are all in place, as far as known, waits longer for its turn than others."""

LOOKING = 0.4
"""The part of a pass's share in which it reads where tasks are; the rest is left for moving them."""

MOVING = 0.8
"""The part of a pass's share after which no turn begins: groups are still to be removed and read back."""


class Placer:
    """Knows where the VMs' tasks were found last, so that only what changed is looked at.

    :param filesystem: resctrl.
    :param backoff: failures, by ``("tasks", uuid)``.
    """

    def __init__(self, filesystem: Filesystem, backoff: Backoff) -> None:
        self._filesystem = filesystem
        self._backoff = backoff
        self._strays = StrayWatch()
        self._placed: dict[str, TaskPlacement] = {}
        self._owed: set[str] = set()
        self._served: dict[str, float] = {}
        self._pace = Pace()

    @property
    def placed(self) -> Mapping[str, TaskPlacement]:
        """What was found when the VMs' tasks were last looked at, by UUID."""
        return self._placed

    @property
    def is_owing(self) -> bool:
        """Whether time ran out before all was looked at, or before all tasks were moved."""
        return bool(self._owed) or self._strays.is_behind

    def forget(self) -> None:
        """Take nothing from earlier passes for granted."""
        self._owed.clear()
        self._placed.clear()
        self._strays.forget()

    def strays(self, vms: Mapping[str, ObservedVm], share: LockShare) -> set[str]:
        """UUIDs of the VMs that have tasks in the default group that belong elsewhere; VMs that are gone are forgotten.

        :param share: the time that this pass has.
        :raises vmqos.resctrl.exceptions.ResctrlError: if the default group can't be read.
        """
        for known in (self._placed, self._served):
            for uuid in known.keys() - vms.keys():
                del known[uuid]
        self._owed &= vms.keys()
        return self._strays.look(self._filesystem, self._placed, vms, share)

    def place(
        self,
        now: ResctrlState,
        aims: Mapping[str, TaskGroups],
        look_at: Set[str],
        vms: Mapping[str, ObservedVm],
        fresh: Set[str],
        share: LockShare,
    ) -> None:
        """Put the tasks of those VMs where they belong that need it; the caller holds the exclusive lock.

        What does not fit into the pass's share is owed to the next one: :attr:`is_owing`.

        :param aims: where the tasks of each VM belong, by UUID, those that came first in front.
        :param look_at: UUIDs of VMs whose tasks may have changed.
        :param fresh: directories that are new, so that no task is in them.
        :param share: the time that this pass has.
        """
        due = [
            uuid
            for uuid, aim in aims.items()
            if not self._backoff.waits(("tasks", uuid))
            and (
                uuid in look_at
                or uuid in self._owed
                or uuid not in self._placed
                or (self._placed[uuid].target, self._placed[uuid].rest) != (aim.target, aim.rest)
                or not aim.directories.isdisjoint(fresh)
                or self._backoff.get(("tasks", uuid)) is not None
            )
        ]
        self._owed = set(due)
        if not due:
            return
        self._strays.look_again()
        due.sort(key=lambda uuid: self._rank(uuid, aims[uuid]))
        # Many VMs may have the same target; whoever reads a tasks file has the kernel go through all tasks of the host.
        there: dict[str, set[int]] = {directory: set() for directory in fresh}
        turns = deque[str]()
        for uuid in due:
            if turns and share.is_over(LOOKING):
                break
            turns.append(uuid)
            for directory in aims[uuid].directories - there.keys():
                # What is wrong with it is told of the VMs that belong there.
                with contextlib.suppress(exceptions.ResctrlError):
                    there[directory] = tasks.read_tasks(self._filesystem, directory)
        # Only now: others need not take the lock, and whom they take between the two reads is missed above, found here.
        left_alone = self._foreign_tasks(now)
        # The first turn is a whole one, however long the reading took.
        until = share.now() + TURN
        while turns:
            uuid = turns.popleft()
            if self._place_one(vms[uuid], aims[uuid], left_alone, there, until):
                self._owed.discard(uuid)
            else:
                turns.append(uuid)
            self._served[uuid] = share.now()
            if share.is_over(MOVING):
                break
            until = min(share.now() + TURN, share.end(MOVING))

    def _rank(self, uuid: str, aim: TaskGroups) -> tuple[bool, float]:
        """Whose turn is first: the VM that has nothing of its promise, then the one that waits longest."""
        placed = self._placed.get(uuid)
        waits = bool(aim.target.control) and (placed is None or placed.target.control != aim.target.control)
        misses = placed is None or placed.in_place != placed.tasks - placed.foreign
        return not waits, self._served.get(uuid, 0.0) + (0.0 if misses else PATIENCE)

    def _place_one(
        self,
        observed: ObservedVm,
        aim: TaskGroups,
        left_alone: tuple[set[int], set[int]],
        there: dict[str, set[int]],
        until: float,
    ) -> bool:
        """Give one VM its turn; whether it is done, for now or because something failed.

        :param until: when the turn ends, in monotonic seconds.
        """
        vm = observed.vm
        foreign, watched = left_alone

        def put(target: TaskGroup, list_tasks: Callable[[], set[int]]) -> TaskPlacement:
            directory = target.directory
            if directory not in there:
                there[directory] = tasks.read_tasks(self._filesystem, directory)
            others = foreign if target.control else foreign | watched
            return move_tasks.place(
                self._filesystem, target, list_tasks, others, there[directory], pace=self._pace, until=until
            )

        try:
            with vm_tasks.lister(vm) as list_own:

                def list_tasks() -> set[int]:
                    return list_own() | self._strays.kernel_threads(vm.uuid)

                def list_chosen() -> set[int]:
                    # Which threads the vCPUs' are was seen before the lock was taken; some may have ended.
                    return list_own() & (aim.threads or set())

                if aim.rest is None:
                    placed = put(aim.target, list_tasks)
                else:
                    chosen = put(aim.target, list_chosen)
                    placed = move_tasks.joined(chosen, put(aim.rest, lambda: list_tasks() - list_chosen()))
            self._placed[vm.uuid] = placed
            self._backoff.succeed(("tasks", vm.uuid))
            return not placed.is_cut_short
        except ProcessVanished:
            LOG.debug("VM %s has ended", vm.uuid)
        except (HypervisorError, OSError) as error:
            text = f"its tasks can't be listed now: {error}"[:ERROR_LENGTH]
            self._backoff.fail(("tasks", vm.uuid), Reason(Code.NOT_READABLE, text))
            LOG.info("the tasks of VM %s can't be listed now: %s", vm.uuid, error)
        except exceptions.ResctrlError as error:
            self._backoff.fail(("tasks", vm.uuid), of_error(error))
            LOG.error("tasks of VM %s can't be moved to %s: %s", vm.uuid, aim.target.directory or "/", error)
        except Exception as error:
            reason = unexpected("moving its tasks", error)
            self._backoff.fail(("tasks", vm.uuid), reason)
            LOG.exception("VM %s: %s", vm.uuid, reason)
        return True

    def _foreign_tasks(self, now: ResctrlState) -> tuple[set[int], set[int]]:
        """The tasks in control groups that others made, and those in their monitoring groups inside of ours.

        The groups are listed anew: others may have made one since the pass began.
        """
        foreign, watched = set[int](), set[int]()
        for control in groups.list_names(self._filesystem):
            if owner_of(control) is Owner.FOREIGN:
                if now.modes.get(control) != pseudo_lock.LOCKED:
                    foreign |= self._read_foreign(control)
            elif now.capabilities.monitoring is not None:
                # Others may remove theirs, and the kernel removes all of a control group that is made pseudo-locked.
                with contextlib.suppress(exceptions.ResctrlError):
                    for name in groups.list_monitoring_groups(self._filesystem, control):
                        if owner_of(name) is not Owner.VM:
                            watched |= self._read_foreign(TaskGroup(control, name).directory)
        return foreign, watched

    def _read_foreign(self, directory: str) -> set[int]:
        try:
            return tasks.read_tasks(self._filesystem, directory)
        except exceptions.Vanished:
            # Others may make and remove hundreds of theirs a second.
            return set()
        except exceptions.ResctrlError as error:
            LOG.info("the tasks of the foreign group %s can't be read: %s", directory, error)
            return set()
