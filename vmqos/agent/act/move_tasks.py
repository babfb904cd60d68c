# SPDX-License-Identifier: Apache-2.0
"""Putting all tasks of a VM where they belong, although threads come and go meanwhile, and time may run out."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass

from vmqos.agent.act.lock_share import SMALLEST_CHUNK, Pace
from vmqos.resctrl import exceptions, tasks
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

ROUNDS = 8
"""How often to look for threads that were born to a thread which had not been moved yet. Each round halves the odds
at least; what is left is found by the next audit."""


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Where a VM's tasks belong.

    :ivar control: the control group; the empty name is the default group.
    :ivar monitoring: the monitoring group in it; ``None`` for the control group's own monitoring.
    """

    control: str
    monitoring: str | None = None

    @property
    def directory(self) -> str:
        """The directory below the root of resctrl whose ``tasks`` file must list them all."""
        parts = [self.control] if self.control else []
        if self.monitoring is not None:
            parts += ["mon_groups", self.monitoring]
        return "/".join(parts)


@dataclass(frozen=True, slots=True)
class TaskGroups:
    """Where all tasks of a VM belong.

    :ivar target: where they belong.
    :ivar threads: the ids of the threads that alone belong there; ``None``: all tasks do.
    :ivar rest: where the others belong, in the default group; ``None`` where there are none.
    """

    target: TaskGroup
    threads: frozenset[int] | None = None
    rest: TaskGroup | None = None

    @property
    def directories(self) -> frozenset[str]:
        """The directories whose ``tasks`` files list them."""
        return frozenset(target.directory for target in (self.target, self.rest) if target is not None)


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """What was found when a VM's tasks were last looked at.

    :ivar target: where they belong, or those of some vCPUs.
    :ivar tasks: its tasks.
    :ivar in_place: those of them that are where they belong.
    :ivar foreign: those that somebody else put into a group of theirs, where they are left.
    :ivar chosen: those that belong in the target; ``None``: all.
    :ivar rest: where the others belong, in the default group; ``None`` where all belong in the target.
    :ivar is_cut_short: whether time ran out before all of them were moved.
    """

    target: TaskGroup
    tasks: frozenset[int]
    in_place: frozenset[int]
    foreign: frozenset[int] = frozenset()
    chosen: frozenset[int] | None = None
    rest: TaskGroup | None = None
    is_cut_short: bool = False

    @property
    def promised(self) -> frozenset[int]:
        """The tasks that belong in the target."""
        return self.tasks if self.chosen is None else self.chosen

    def control_of(self, tid: int) -> str:
        """The control group that a task belongs in."""
        return self.target.control if self.chosen is None or tid in self.chosen else ""


def place(
    filesystem: Filesystem,
    target: TaskGroup,
    list_tasks: Callable[[], Set[int]],
    foreign: Set[int] = frozenset(),
    there: set[int] | None = None,
    *,
    pace: Pace | None = None,
    until: float = math.inf,
) -> TaskPlacement:
    """Move the tasks of a VM that are not where they belong, until it is too late; the caller holds the exclusive lock.

    The oldest go first: QEMU's first thread, whose children are then born where they belong, and those of the vCPUs.

    :param list_tasks: lists the VM's tasks as they are at that moment.
    :param foreign: tasks in groups that are not ours: not to be taken away.
    :param there: the tasks that are in the target, where the caller knows; those that are moved are added.
    :param pace: how many tasks fit into the time.
    :param until: when to stop, in monotonic seconds; a few tasks are moved even later than that.
    :raises vmqos.resctrl.exceptions.ResctrlError: if the kernel refuses a task that lives.
    """
    pace = pace or Pace()
    if there is None:
        there = tasks.read_tasks(filesystem, target.directory)
    wanted = list_tasks()
    strangers, turned, in_time = set[int](), False, True
    for _ in range(ROUNDS):
        missing = sorted(wanted - there - foreign)
        if not missing:
            break
        moved = set[int]()
        # The first chunk of a turn is moved however late it is, so that each turn gets further.
        while missing and (in_time := (size := pace.fits(until)) > 0 or not turned):
            chunk, missing = missing[: size or SMALLEST_CHUNK], missing[size or SMALLEST_CHUNK :]
            moved |= pace.timed(len(chunk), functools.partial(_move, filesystem, target, chunk))
            turned = True
        there |= moved
        wanted = list_tasks()
        strangers |= moved - wanted
        if not in_time:
            break
    if strangers:
        _give_back(filesystem, strangers)
    found = frozenset(wanted)
    # Mostly all of them are: a second set of a VM's thousands of threads would take a megabyte.
    in_place = found if found <= there else found & there
    return TaskPlacement(target, found, in_place, found & foreign, is_cut_short=not in_time)


def joined(chosen: TaskPlacement, rest: TaskPlacement) -> TaskPlacement:
    """What was found of a VM whose tasks belong in two places."""
    return TaskPlacement(
        chosen.target,
        chosen.tasks | rest.tasks,
        chosen.in_place | rest.in_place,
        chosen.foreign | rest.foreign,
        chosen.tasks,
        rest.target,
        chosen.is_cut_short or rest.is_cut_short,
    )


def _move(filesystem: Filesystem, target: TaskGroup, tids: Collection[int]) -> frozenset[int]:
    """Move tasks into the target; those that died meanwhile are left out of the result."""
    if target.monitoring is not None:
        if target.control:
            tids = tasks.move(filesystem, target.control, tids).moved
        else:
            with contextlib.suppress(exceptions.DifferentControlGroup):
                return tasks.move(filesystem, target.directory, tids).moved
            tids = tasks.move(filesystem, target.control, tids).moved
    return tasks.move(filesystem, target.directory, tids).moved


def _give_back(filesystem: Filesystem, tids: set[int]) -> None:
    """Move tasks to the default group that are no longer the VM's.

    They ended while they were moved, so most of these ids are free; one that was given to a new task of another
    process at that very moment must not keep the VM's ways.
    """
    moved = tasks.move(filesystem, "", tids).moved
    if moved:
        LOG.info("gave %d task(s) back to the default group: their ids were reused while they were moved", len(moved))
