# SPDX-License-Identifier: Apache-2.0
"""Which class and RMID each task has, and how new tasks come by theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

_MANY = 1000
"""Tasks of a group from which on it is faster to list every task of the host than to ask for each of them."""

DEFAULT = (0, 0)
"""Class and RMID of a task that was never assigned."""


@dataclass(frozen=True, slots=True)
class Task:
    """One thread of the host.

    :ivar tid: thread id.
    :ivar start: when it started, in clock ticks since boot; with ``tid`` it names the task for ever.
    """

    tid: int
    start: int


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A task that was not there before.

    :ivar creator: the task that most likely made it: the leader of a thread's process, the parent of a process.
    """

    task: Task
    creator: int


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


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a task of another group than the default one has."""

    task: Task
    closid: int
    rmid: int


class Processes(Protocol):
    """Where tasks are looked up: the real ``/proc``, or a table in tests."""

    def find(self, tid: int) -> Task | None:
        """The living task of that id (a zombie lives)."""

    def alive(self, tid: int) -> bool:
        """Whether a task of that id exists."""

    def newcomers(self, known: Mapping[int, Assignment]) -> Iterable[Newcomer]:
        """The tasks made since the last call, a creator before what it made.

        Those that cannot have inherited anything may be left out.

        :param known: the tasks that have something to pass on; a new one may have the id of one that is gone.
        """

    def tids(self) -> Iterable[int]:
        """Every task."""

    def processes(self) -> Mapping[int, list[int]]:
        """The threads of every process."""

    def owners(self, tid: int) -> tuple[int, int] | None:
        """The real and the saved user id of a task."""

    def usage(self, path: str) -> Usage | None:
        """What has been used.

        :param path: ``PID`` for a whole process, ``PID/task/TID`` for one thread.
        """


class Membership:
    """The class and RMID of every task; the kernel keeps them in ``task_struct``.

    Only tasks outside the default group are remembered. Who copies from whom is known to the kernel alone;
    here a new thread takes after its process's leader and a new process after its parent.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._assigned: dict[int, Assignment] = {}
        self._tids: dict[tuple[int, int], set[int]] = {}
        self.settle()

    def settle(self) -> None:
        """Give tasks that are new since the last call what they inherited.

        To be called before anything is assigned, so that no task inherits what its creator got only later.
        """
        for newcomer in self._processes.newcomers(self._assigned):
            tid, creator = newcomer.task.tid, newcomer.creator
            closid, rmid = self.of(creator) if creator != tid else DEFAULT
            self.assign(newcomer.task, closid, rmid)

    def of(self, tid: int) -> tuple[int, int]:
        """Class and RMID of a task."""
        assignment = self._assigned.get(tid)
        return (assignment.closid, assignment.rmid) if assignment else DEFAULT

    def assign(self, task: Task, closid: int, rmid: int) -> None:
        """Set class and RMID of a task."""
        self._forget(task.tid)
        if (closid, rmid) != DEFAULT:
            self._assigned[task.tid] = Assignment(task, closid, rmid)
            self._tids.setdefault((closid, rmid), set()).add(task.tid)

    def members(self, belongs: Callable[[int, int], bool]) -> list[int]:
        """The living tasks whose class and RMID pass the test."""
        self.settle()
        if belongs(*DEFAULT):
            everybody = list(self._processes.tids())
            for tid in self._assigned.keys() - set(everybody):
                self._forget(tid)
            others = self._assigned.keys() - set(self._matching(belongs))
            return [tid for tid in everybody if tid not in others]
        found = sorted(self._matching(belongs))
        if len(found) > _MANY:
            dead = set(found).difference(self._processes.tids())
        else:
            dead = {tid for tid in found if not self._processes.alive(tid)}
        for tid in dead:
            self._forget(tid)
        return [tid for tid in found if tid in self._assigned]

    def move_all(self, belongs: Callable[[int, int], bool], closid: int, rmid: int) -> None:
        """Give every task that passes the test another class and RMID (``rdt_move_group_tasks``)."""
        self.settle()
        for tid in self._matching(belongs):
            self.assign(self._assigned[tid].task, closid, rmid)

    def _matching(self, belongs: Callable[[int, int], bool]) -> list[int]:
        return [tid for key, tids in self._tids.items() if belongs(*key) for tid in tids]

    def _forget(self, tid: int) -> None:
        assignment = self._assigned.pop(tid, None)
        if assignment is not None:
            key = (assignment.closid, assignment.rmid)
            self._tids[key].discard(tid)
            if not self._tids[key]:
                del self._tids[key]

    def assignments(self) -> Mapping[int, Assignment]:
        """The tasks outside the default group."""
        return self._assigned
