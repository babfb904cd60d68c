# SPDX-License-Identifier: Apache-2.0
"""Moving all tasks of a VM to their group, although threads come and go meanwhile and the time may run out."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import time
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass, replace

from vmqos.resctrl import exceptions, groups, tasks
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

ROUNDS = 8
"""How often to look for threads whose parent had not been moved yet when they were born. Each round at least halves the
odds that one is left; the next audit finds it then."""

SMALLEST_CHUNK = 64
"""Tasks that are moved in each turn even if its time is over, so that every turn gets further."""

LARGEST_CHUNK = 512
"""Tasks that are moved, at most, between two looks at the clock: about as many ids as fit into one write."""

_FIRST_GUESS = 50e-6
"""Seconds that the move of one task is assumed to take at first. A kernel needs less, the simulator more."""


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """One group of resctrl in which tasks of a VM belong.

    :ivar control: the control group; the empty name is the default group.
    :ivar monitoring: the monitoring group in it; ``None``: the tasks are counted with the control group's own ones.
    """

    control: str
    monitoring: str | None = None

    @property
    def directory(self) -> str:
        """The directory, below the root of resctrl, whose ``tasks`` file must list the tasks."""
        if self.monitoring is None:
            return self.control
        return groups.monitoring_directory(self.control, self.monitoring)


@dataclass(frozen=True, slots=True)
class TaskGroups:
    """The one or two groups in which the tasks of a VM belong.

    :ivar target: the group with the VM's ways.
    :ivar threads: the ids of the threads that belong in the target, if only some do; ``None``: all tasks do.
    :ivar rest: the group of all other tasks, in the default group; ``None`` where all tasks belong in the target.
    """

    target: TaskGroup
    threads: frozenset[int] | None = None
    rest: TaskGroup | None = None

    @property
    def directories(self) -> frozenset[str]:
        """The directories whose ``tasks`` files must list the tasks."""
        return frozenset(target.directory for target in (self.target, self.rest) if target is not None)


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """The tasks of a VM, and their groups, at the last look at them.

    :ivar target: the group with the VM's ways.
    :ivar tasks: all tasks of the VM.
    :ivar in_place: the tasks that are in the group in which they belong.
    :ivar foreign: the tasks that another program put into a group of its own, where they are left.
    :ivar chosen: the tasks that belong in the target, if only some do; ``None``: all do.
    :ivar rest: the group of all other tasks, in the default group; ``None`` where all tasks belong in the target.
    :ivar is_cut_short: whether time ran out before all tasks were moved.
    :ivar outside: nanoseconds of CPU that the tasks that were moved have used outside of their group.
    """

    target: TaskGroup
    tasks: frozenset[int]
    in_place: frozenset[int]
    foreign: frozenset[int] = frozenset()
    chosen: frozenset[int] | None = None
    rest: TaskGroup | None = None
    is_cut_short: bool = False
    outside: int = 0

    @property
    def promised(self) -> frozenset[int]:
        """The tasks that belong in the target."""
        return self.tasks if self.chosen is None else self.chosen

    @property
    def directories(self) -> frozenset[str]:
        """The directories of the groups in which the tasks belong."""
        return frozenset(group.directory for group in (self.target, self.rest) if group is not None)

    def without(self, directories: Set[str]) -> TaskPlacement:
        """The placement once these monitoring groups are gone."""

        def left(group: TaskGroup) -> TaskGroup:
            return TaskGroup(group.control) if group.directory in directories else group

        return replace(self, target=left(self.target), rest=None if self.rest is None else left(self.rest))

    def aims_at(self, aim: TaskGroups) -> bool:
        """Whether these are the groups in which the tasks belong."""
        return (self.target, self.rest) == (aim.target, aim.rest)

    def control_of(self, tid: int) -> str:
        """The control group that a task belongs in."""
        return self.target.control if self.chosen is None or tid in self.chosen else ""


class Pace:
    """How long the move of a task took lately; one object watches one mount."""

    __slots__ = ("_seconds_each",)

    def __init__(self) -> None:
        self._seconds_each = _FIRST_GUESS

    def fits(self, until: float) -> int:
        """How many tasks can be moved until then: :data:`SMALLEST_CHUNK` to :data:`LARGEST_CHUNK`, or 0 if fewer fit.

        :param until: monotonic seconds.
        """
        number = min(LARGEST_CHUNK, (until - time.monotonic()) / self._seconds_each)
        return int(number) if number >= SMALLEST_CHUNK else 0

    def timed(self, number: int, move: Callable[[], frozenset[int]]) -> frozenset[int]:
        """Carry out a move of tasks, and learn from it how long the move of one task takes.

        :param number: how many tasks ``move`` moves.
        :returns: what ``move`` returns.
        """
        began = time.monotonic()
        moved = move()
        if number >= SMALLEST_CHUNK:
            self._seconds_each = max(1e-7, (time.monotonic() - began) / number)
        return moved


def place(
    filesystem: Filesystem,
    target: TaskGroup,
    list_tasks: Callable[[], Set[int]],
    foreign: Set[int] = frozenset(),
    there: set[int] | None = None,
    *,
    pace: Pace | None = None,
    until: float = math.inf,
    outside: Callable[[Collection[int]], int] = lambda tids: 0,
) -> TaskPlacement:
    """Move the tasks of a VM that are not in the target, until the time is over; the caller holds the exclusive lock.

    The oldest tasks go first: QEMU's first thread, whose children are born in the target from then on, and the vCPUs'.

    :param list_tasks: lists the VM's tasks as they are at that moment.
    :param foreign: tasks in groups that are not ours: they are left there.
    :param there: the tasks in the target, if the caller knows them; the tasks that are moved are added.
    :param pace: says how many tasks can be moved in a time, and learns from each move.
    :param until: when to stop, in monotonic seconds; a few tasks are moved even later.
    :param outside: how many nanoseconds of CPU the tasks that are about to be moved have used outside of the target.
    :raises vmqos.resctrl.exceptions.ResctrlError: if the kernel refuses a task that lives.
    """
    pace = pace or Pace()
    if there is None:
        there = tasks.read_tasks(filesystem, target.directory)
    wanted = list_tasks()
    if not wanted.isdisjoint(there) and not wanted <= there | foreign:
        # A thread that was born since the target was read, of one that is there, is there too.
        there |= tasks.read_tasks(filesystem, target.directory)
    strangers, turned, in_time, used = set[int](), False, True, 0
    for _ in range(ROUNDS):
        missing = sorted(wanted - there - foreign)
        if not missing:
            break
        used += outside(missing)
        moved = set[int]()
        # The first chunk of a turn is moved even if its time is over, so that each turn gets further.
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
    # Mostly all tasks are in place: then one set serves for both, as a second one of thousands would take a megabyte.
    in_place = found if found <= there else found & there
    return TaskPlacement(target, found, in_place, found & foreign, is_cut_short=not in_time, outside=used)


def joined(chosen: TaskPlacement, rest: TaskPlacement) -> TaskPlacement:
    """The result for a VM whose tasks belong in two groups.

    :param chosen: the result for the tasks that belong in the group with the VM's ways.
    :param rest: the result for the other tasks.
    """
    return TaskPlacement(
        chosen.target,
        chosen.tasks | rest.tasks,
        chosen.in_place | rest.in_place,
        chosen.foreign | rest.foreign,
        chosen.tasks,
        rest.target,
        chosen.is_cut_short or rest.is_cut_short,
        chosen.outside + rest.outside,
    )


def _move(filesystem: Filesystem, target: TaskGroup, tids: Collection[int]) -> frozenset[int]:
    """Move tasks into the target; return those that did not end meanwhile."""
    if target.monitoring is not None:
        if target.control:
            tids = tasks.move(filesystem, target.control, tids)
        else:
            with contextlib.suppress(exceptions.DifferentControlGroup):
                return tasks.move(filesystem, target.directory, tids)
            tids = tasks.move(filesystem, target.control, tids)
    return tasks.move(filesystem, target.directory, tids)


def _give_back(filesystem: Filesystem, tids: set[int]) -> None:
    """Move the tasks with these ids to the default group, because they are not the VM's any more.

    The VM's tasks ended while they were moved, so most of these ids are free. But the kernel may have given one to a
    new task of another process at that very moment, and this task must not keep the VM's ways.
    """
    moved = tasks.move(filesystem, "", tids)
    if moved:
        LOG.info("tasks given back to the default group, whose ids were reused while they were moved: %d", len(moved))
