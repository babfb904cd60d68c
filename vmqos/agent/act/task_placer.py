# SPDX-License-Identifier: Apache-2.0
"""Deciding which VMs' tasks a pass moves, in which order, and which tasks stay where other programs put them.

The agent holds the lock on resctrl meanwhile, so a pass moves only as many tasks as fit into its share of time. Each VM
has a turn, which ends after :data:`TURN`. If the VM has tasks left then, it gets another turn after the others had
theirs. So no VM, however many threads it has, keeps another one waiting.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence, Set

from vmqos.agent.act import move_tasks
from vmqos.agent.act.move_tasks import Pace, TaskGroup, TaskGroups, TaskPlacement
from vmqos.agent.act.outside_time import OutsideTime, measure
from vmqos.agent.courtesy import LockShare
from vmqos.agent.observe.running_vms import ERROR_LENGTH, ObservedVm, unexpected
from vmqos.agent.observe.stray_tasks import StrayWatch
from vmqos.daemon.backoff import Backoff
from vmqos.group_names import Owner, owner_of
from vmqos.host.resctrl_state import ResctrlState
from vmqos.hypervisor import vm_tasks
from vmqos.hypervisor.exceptions import HypervisorError, ProcessVanished
from vmqos.hypervisor.model import VirtualMachine
from vmqos.reason import Code, Reason, of_error
from vmqos.resctrl import exceptions, groups, pseudo_lock, tasks
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

TURN = 0.02
"""Seconds after which another VM has its turn."""

PATIENCE = 1.0
"""Seconds that a VM waits longer than others for its turn if all its tasks were in place at the last look."""

LOOKING = 0.4
"""The part of a pass's share in which it reads where tasks are; the rest is for moving them."""

MOVING = 0.8
"""The part of a pass's share after which no turn begins: the rest is for removing groups and reading them back."""

AT_LEAST = 0.01
"""Seconds in which each pass reads where tasks are, and again in which it moves them, even if reading resctrl has used
up the share: if it placed one VM alone, resctrl would be read once for each VM of the host."""

RECENT = 0.2
"""Seconds after which strays are looked for again by passes that follow each other at once, because one had no time for
all VMs: each look takes about as long as the looks at twenty VMs."""

YET_TO_BE_MOVED = "its tasks are yet to be moved to its group"


def _none(tids: Collection[int]) -> int:
    """The CPU time that tasks have used outside of their group, for those that have no group."""
    return 0


class Placer:
    """Moves the VMs' tasks. It knows where they were found last, and looks only at VMs that may have changed.

    :param filesystem: resctrl.
    :param backoff: failures, by ``("tasks", uuid)``.
    """

    def __init__(self, filesystem: Filesystem, backoff: Backoff) -> None:
        self._filesystem = filesystem
        self._backoff = backoff
        self._strays = StrayWatch()
        self.placed: dict[str, TaskPlacement] = {}
        """The VMs' tasks and their groups at the last look at them, by UUID."""
        self.outside: dict[str, OutsideTime] = {}
        """The CPU time that the VMs' tasks have used outside of their groups, by UUID; only of VMs with a promise."""
        self._owed: set[str] = set()
        self._served: dict[str, float] = {}
        self._pace = Pace()

    @property
    def is_owing(self) -> bool:
        """Whether time ran out before all tasks were looked at, or before all were moved."""
        return bool(self._owed) or self._strays.is_behind

    def forget(self) -> None:
        """Trust nothing that earlier passes found."""
        self._owed.clear()
        self.placed.clear()
        self._strays.forget()

    def note_removed(self, directories: Set[str]) -> None:
        """Note which monitoring groups are gone: the kernel counts tasks in them with those of their control group."""
        for uuid, placed in self.placed.items():
            if not directories.isdisjoint(placed.directories):
                self.placed[uuid] = placed.without(directories)

    def keep_only(self, vms: Set[str]) -> None:
        """Forget the VMs that are gone.

        :param vms: UUIDs of those that are not.
        """
        for known in (self.placed, self._served, self.outside):
            for uuid in known.keys() - vms:
                del known[uuid]
        self._owed &= vms

    def strays(self, vms: Mapping[str, ObservedVm], share: LockShare) -> set[str]:
        """UUIDs of the VMs with tasks in the default group that belong elsewhere.

        :param share: the time that this pass has.
        :raises vmqos.resctrl.exceptions.ResctrlError: if the default group can't be read.
        """
        if self._owed and not self._strays.is_behind and self._strays.since_look < RECENT:
            return set()
        return self._strays.look(self._filesystem, self.placed, vms, share)

    def place(
        self,
        now: ResctrlState,
        aims: Mapping[str, TaskGroups],
        look_at: Set[str],
        vms: Mapping[str, ObservedVm],
        fresh: Set[str],
        share: LockShare,
    ) -> None:
        """Move the tasks of all VMs that may have tasks in a wrong group; the caller holds the exclusive lock.

        The next pass moves the tasks for which the share of this pass does not suffice: :attr:`is_owing`.

        :param aims: the groups in which each VM's tasks belong, by UUID, in order of arrival.
        :param look_at: UUIDs of VMs whose tasks may have changed.
        :param fresh: the directories of new groups: no task is in them.
        :param share: the time that this pass has.
        """
        due = [uuid for uuid, aim in aims.items() if self._is_due(uuid, aim, look_at, fresh)]
        self._owed = set(due)
        if not due or (share.can_wait and share.gives_way()):
            return
        self._strays.look_again()
        there: dict[str, set[int]] = {directory: set() for directory in fresh}
        turns = self._read_groups(sorted(due, key=lambda uuid: self._rank(uuid, aims[uuid])), aims, there, share)
        # Foreign groups are read last. Other programs need not take the lock: if one takes a task into its group
        # between the two reads, this read finds it.
        left_alone = self._foreign_tasks(now)
        # The first turn is never cut short, even if the reading took long.
        until, at_least = time.monotonic() + TURN, time.monotonic() + AT_LEAST
        while turns:
            uuid = turns.popleft()
            if self._place_one(vms[uuid], aims[uuid], left_alone, there, until):
                self._owed.discard(uuid)
            else:
                turns.append(uuid)
            self._served[uuid] = time.monotonic()
            if share.is_over(MOVING, at_least):
                break
            until = min(time.monotonic() + TURN, max(at_least, share.end(MOVING)))

    def _is_due(self, uuid: str, aim: TaskGroups, look_at: Set[str], fresh: Set[str]) -> bool:
        """Whether the VM may have tasks in a wrong group, unless a move failed a short time ago."""
        key, placed = ("tasks", uuid), self.placed.get(uuid)
        if self._backoff.waits(key):
            return False
        if placed is None or not placed.aims_at(aim) or self._backoff.is_due(key):
            return True
        return uuid in look_at or uuid in self._owed or not aim.directories.isdisjoint(fresh)

    def _read_groups(
        self, order: Sequence[str], aims: Mapping[str, TaskGroups], there: dict[str, set[int]], share: LockShare
    ) -> deque[str]:
        """Read the tasks of the groups where VMs' tasks belong, for as many VMs as there is time for.

        Many VMs may have the same target, and for each read of a tasks file the kernel goes through all tasks of the
        host: so each file is read once.

        :param there: the tasks by directory; what is read is added.
        :returns: the VMs that have a turn in this pass, in order.
        """
        turns, at_least = deque[str](), time.monotonic() + AT_LEAST
        for uuid in order:
            if turns and share.is_over(LOOKING, at_least):
                break
            turns.append(uuid)
            for directory in aims[uuid].directories - there.keys():
                # If it can't be read, the turns of the VMs that belong there meet the error and note it.
                with contextlib.suppress(exceptions.ResctrlError):
                    there[directory] = tasks.read_tasks(self._filesystem, directory)
        return turns

    def _rank(self, uuid: str, aim: TaskGroups) -> tuple[bool, float]:
        """The key that orders the turns: first VMs that have nothing of their promise, then those that wait longest."""
        placed = self.placed.get(uuid)
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
        """Give one VM its turn; return whether it is done, also because something failed.

        :param until: when the turn ends, in monotonic seconds.
        """
        vm = observed.vm
        try:
            placed = self._move_all(vm, aim, left_alone, there, until)
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

    def _move_all(
        self,
        vm: VirtualMachine,
        aim: TaskGroups,
        left_alone: tuple[set[int], set[int]],
        there: dict[str, set[int]],
        until: float,
    ) -> TaskPlacement:
        """Move the tasks of one VM to its groups, as far as its turn goes, and remember where they are.

        :param until: when the turn ends, in monotonic seconds.
        :raises vmqos.hypervisor.exceptions.HypervisorError: if its tasks can't be listed; so does ``OSError``.
        :raises vmqos.resctrl.exceptions.ResctrlError: if they can't be moved.
        """
        foreign, watched = left_alone
        since_served = time.monotonic() - self._served.get(vm.uuid, 0.0)

        def put(
            target: TaskGroup, list_tasks: Callable[[], set[int]], used: Callable[[Collection[int]], int] = _none
        ) -> TaskPlacement:
            directory = target.directory
            if directory not in there:
                there[directory] = tasks.read_tasks(self._filesystem, directory)
            return move_tasks.place(
                self._filesystem,
                target,
                list_tasks,
                foreign if target.control else foreign | watched,
                there[directory],
                pace=self._pace,
                until=until,
                outside=used,
            )

        with vm_tasks.lister(vm) as list_own:

            def list_tasks() -> set[int]:
                return list_own() | self._strays.kernel_threads(vm.uuid)

            def list_chosen() -> set[int]:
                # The threads of the vCPUs were found before the lock was taken; some may have ended.
                return list_own() & (aim.threads or set())

            list_promised = list_tasks if aim.rest is None else list_chosen
            outside: OutsideTime | None = None
            used: Callable[[Collection[int]], int] = _none
            if aim.target.control:
                outside = self.outside.get(vm.uuid)
                if outside is None or outside.process != vm.process:
                    was_moved = self._was_moved(aim.target, list_promised, foreign, there)
                    outside = OutsideTime(vm.process, at_start=None if was_moved else 0)
                used = measure(outside, self.placed.get(vm.uuid), aim, self._strays.longest, since_served)
            placed = put(aim.target, list_promised, used)
            if aim.rest is not None:
                placed = move_tasks.joined(placed, put(aim.rest, lambda: list_tasks() - list_chosen()))
        self.placed[vm.uuid] = placed
        if outside is not None:
            self.outside[vm.uuid] = outside.plus(placed)
        return placed

    def _was_moved(
        self, target: TaskGroup, list_tasks: Callable[[], set[int]], foreign: Set[int], there: dict[str, set[int]]
    ) -> bool:
        """Whether tasks of a VM were moved before this first look at it, by an agent that ran before this one.

        Then they are in a group of ours. What was not moved is in the default group, where libvirt is.

        :param list_tasks: lists the tasks that belong in the target.
        :param foreign: tasks in groups that are not ours.
        :param there: the tasks by directory; what is read is added.
        :raises vmqos.resctrl.exceptions.ResctrlError: if the default group can't be read.
        """
        if not there.get(target.directory, set()).isdisjoint(list_tasks()):
            return True
        if "" not in there:
            there[""] = tasks.read_tasks(self._filesystem, "")
        apart = list_tasks() - there[""] - foreign
        if not apart:
            return False
        # They may have been born since the default group was read, or have ended.
        there[""] = tasks.read_tasks(self._filesystem, "")
        return bool(apart & list_tasks() - there[""])

    def _foreign_tasks(self, now: ResctrlState) -> tuple[set[int], set[int]]:
        """The tasks in other programs' control groups, and those in other programs' monitoring groups inside of ours.

        The groups are listed anew: another program may have made one since the pass began.
        """
        foreign, watched = set[int](), set[int]()
        for control in groups.list_names(self._filesystem):
            if owner_of(control) is Owner.FOREIGN:
                if now.modes.get(control) != pseudo_lock.LOCKED:
                    foreign |= self._read_foreign(control)
            elif now.capabilities.monitoring is not None:
                # Another program may remove its group, and when a control group becomes pseudo-locked, the kernel
                # removes all monitoring groups in it.
                with contextlib.suppress(exceptions.ResctrlError):
                    for name in groups.list_monitoring_groups(self._filesystem, control):
                        if owner_of(name) is not Owner.VM:
                            watched |= self._read_foreign(TaskGroup(control, name).directory)
        return foreign, watched

    def _read_foreign(self, directory: str) -> set[int]:
        try:
            return tasks.read_tasks(self._filesystem, directory)
        except exceptions.Vanished:
            # Another program may make and remove hundreds of groups a second.
            return set()
        except exceptions.ResctrlError as error:
            LOG.info("the tasks of the foreign group %s can't be read: %s", directory, error)
            return set()
