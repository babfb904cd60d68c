# SPDX-License-Identifier: Apache-2.0
"""Which class and RMID each task has, and how new tasks come by theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

DEFAULT = (0, 0)
"""Class and RMID of a task that nobody has assigned."""


@dataclass(frozen=True, slots=True)
class Task:
    """One thread of the host.

    :ivar tid: thread id.
    :ivar tgid: id of its process.
    :ivar parent: id of the process's parent.
    :ivar start: when it started, in clock ticks since boot; with ``tid`` it names the task for ever.
    """

    tid: int
    tgid: int
    parent: int
    start: int

    @property
    def creator(self) -> int:
        """The task that most likely made this one: the leader of a thread, the parent of a process."""
        return self.parent if self.tid == self.tgid else self.tgid


@dataclass(frozen=True, slots=True)
class Usage:
    """What a task or process has used.

    :ivar seconds: CPU time since its start.
    :ivar resident: bytes of memory its process holds.
    :ivar cpu: where it ran last.
    """

    seconds: float
    resident: int
    cpu: int


class Processes(Protocol):
    """Where tasks are looked up: the real ``/proc``, or a table in tests."""

    def find(self, tid: int) -> Task | None:
        """The living task of that id (a zombie lives)."""

    def alive(self, tid: int) -> bool:
        """Whether a task of that id exists."""

    def newcomers(self, known: Mapping[int, int]) -> Iterable[Task]:
        """The tasks made since the last call, the older ones first.

        :param known: start times by id, to tell a reused id.
        """

    def tids(self) -> Iterable[int]:
        """Every task, process by process."""

    def processes(self) -> Mapping[int, list[int]]:
        """The threads of every process."""

    def owners(self, tid: int) -> tuple[int, int] | None:
        """The real and the saved user id of a task."""

    def usage(self, path: str) -> Usage | None:
        """What has been used.

        :param path: ``PID`` for a whole process, ``PID/task/TID`` for one thread.
        """


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a task of another group than the default one has."""

    task: Task
    closid: int
    rmid: int


class Membership:
    """The class and RMID of every task; the kernel keeps them in ``task_struct``.

    Only tasks outside the default group are remembered. Who copies from whom is known to the kernel alone;
    here a new thread takes after its process's leader and a new process after its parent.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._assigned: dict[int, Assignment] = {}
        self.settle()

    def settle(self) -> None:
        """Give tasks that are new since the last call what they inherited.

        To be called before anything is assigned, so that nobody inherits what its creator got only later.
        """
        known = {tid: assignment.task.start for tid, assignment in self._assigned.items()}
        for task in self._processes.newcomers(known):
            inherited = self._assigned.get(task.creator)
            if inherited is not None and task.creator != task.tid:
                self._assigned[task.tid] = replace(inherited, task=task)
            else:
                self._assigned.pop(task.tid, None)

    def of(self, tid: int) -> tuple[int, int]:
        """Class and RMID of a task."""
        assignment = self._assigned.get(tid)
        return (assignment.closid, assignment.rmid) if assignment else DEFAULT

    def assign(self, task: Task, closid: int, rmid: int) -> None:
        """Set class and RMID of a task."""
        if (closid, rmid) == DEFAULT:
            self._assigned.pop(task.tid, None)
        else:
            self._assigned[task.tid] = Assignment(task, closid, rmid)

    def members(self, belongs: Callable[[int, int], bool]) -> list[int]:
        """The living tasks whose class and RMID pass the test, process by process."""
        self.settle()
        if belongs(*DEFAULT):
            everybody = list(self._processes.tids())
            living = set(everybody)
            self._assigned = {tid: one for tid, one in self._assigned.items() if tid in living}
            return [tid for tid in everybody if belongs(*self.of(tid))]
        found = [one.task for one in self._assigned.values() if belongs(one.closid, one.rmid)]
        dead = {task.tid for task in found if not self._processes.alive(task.tid)}
        for tid in dead:
            del self._assigned[tid]
        return [task.tid for task in sorted(found, key=lambda task: (task.tgid, task.tid)) if task.tid not in dead]

    def move_all(self, belongs: Callable[[int, int], bool], closid: int, rmid: int) -> None:
        """Give every task that passes the test another class and RMID (``rdt_move_group_tasks``)."""
        self.settle()
        for one in list(self._assigned.values()):
            if belongs(one.closid, one.rmid):
                self.assign(one.task, closid, rmid)

    def assignments(self) -> Mapping[int, Assignment]:
        """The tasks outside the default group."""
        return self._assigned
