# SPDX-License-Identifier: Apache-2.0
"""The host's tasks, read from ``/proc`` with as few system calls as will do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping

from vmqos.simulator.hardware.tasks import Assignment, Newcomer, Task, Usage

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PARENT, _USER_TIME, _SYSTEM_TIME, _START, _RESIDENT, _PROCESSOR = 1, 11, 12, 19, 21, 36
"""Where things are in ``stat``, counted from the field after the name (proc(5) counts from 3 there)."""
_FEW = 64
_HEAD_OF_STATUS = 4096
"""Bytes of ``status`` that are read: what is asked for stands before its only long line, ``Groups``."""
_SILENCE = 1.0
"""Seconds after which the count of forks is asked whether ids may have gone round."""


class ProcFs:
    """Tasks of the real host.

    New tasks are found by their ids: the kernel hands ids out in ascending order and shows the last one in
    ``/proc/loadavg``. Start times tell apart the tasks whose ids were passed over because they have them, and where so
    many were made that the numbers may have gone round, start times alone decide.

    :param root: where proc is mounted.
    """

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        with open(f"{root}/sys/kernel/pid_max", encoding="ascii") as file:
            self._pid_max = int(file.read())
        # The clock comes first: a task that gets its id after the last one was read starts later than that.
        self._looked_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._last_pid = self._read_last_pid()
        self._forks = self._read_forks()

    def find(self, tid: int) -> Task | None:
        """The living task of that id."""
        fields = self._stat(_of_thread(tid))
        return Task(tid, int(fields[_START])) if fields else None

    def alive(self, tid: int) -> bool:
        """Whether a task of that id exists."""
        return os.path.exists(f"{self._root}/{tid}")

    def newcomers(self, known: Mapping[int, Assignment]) -> list[Newcomer]:
        """The tasks made since the last call, a creator before what it made."""
        now, last = time.clock_gettime(time.CLOCK_BOOTTIME), self._read_last_pid()
        before, previous = self._looked_at, self._last_pid
        self._looked_at, self._last_pid = now, last
        if not known:
            return []
        earliest = int(before * _TICKS)
        if now - before > _SILENCE and self._may_have_gone_round():
            return self._in_order(known, lambda tid: True, lambda start: start >= earliest)
        count = (last - previous) % self._pid_max
        if count <= _FEW:
            candidates = ((previous + step) % self._pid_max for step in range(1, count + 1))
            found = [newcomer for tid in candidates if (newcomer := self._newcomer(tid))]
            return [newcomer for newcomer in found if newcomer.task.start >= earliest]
        return self._in_order(
            known, lambda tid: 0 < (tid - previous) % self._pid_max <= count, lambda start: start >= earliest
        )

    def tids(self) -> list[int]:
        """Every task."""
        return [tid for threads in self.processes().values() for tid in threads]

    def processes(self) -> dict[int, list[int]]:
        """The threads of every process."""
        found: dict[int, list[int]] = {}
        for name in os.listdir(self._root):
            if name.isdigit():
                try:
                    found[int(name)] = [int(tid) for tid in os.listdir(f"{self._root}/{name}/task")]
                except OSError:
                    continue
        return found

    def owners(self, tid: int) -> tuple[int, int] | None:
        """The real and the saved user id of a task."""
        status = self._status(tid)
        if status is None:
            return None
        real, _, saved, _ = status["Uid"].split()
        return int(real), int(saved)

    def usage(self, path: str) -> Usage | None:
        """What a task has used.

        :param path: ``PID`` for a whole process, ``PID/task/TID`` for one thread.
        """
        fields = self._stat(path)
        if not fields:
            return None
        seconds = (int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])) / _TICKS
        return Usage(seconds, int(fields[_RESIDENT]) * _PAGE, int(fields[_PROCESSOR]))

    def _newcomer(self, tid: int) -> Newcomer | None:
        fields, status = self._stat(_of_thread(tid)), self._status(tid)
        if not fields or not status:
            return None
        leader = int(status["Tgid"])
        return Newcomer(Task(tid, int(fields[_START])), leader if leader != tid else int(fields[_PARENT]))

    def _in_order(
        self, known: Mapping[int, Assignment], may_be_new: Callable[[int], bool], is_new: Callable[[int], bool]
    ) -> list[Newcomer]:
        """The new tasks among all that may have inherited something.

        Only the start times of those that may be new are read: a process may have thousands of other threads.

        :param may_be_new: whether a task of that id may be new, or another one than the known one of that id.
        :param is_new: whether a task that may be new and started at that time, in ticks, is new.
        """
        found: list[Newcomer] = []
        for pid, threads in self.processes().items():
            new_process = False
            if may_be_new(pid):
                leader = self._stat(_of_thread(pid))
                if not leader:
                    continue
                start = int(leader[_START])
                new_process = is_new(start) or _is_another(known, pid, start)
                if new_process:
                    found.append(Newcomer(Task(pid, start), int(leader[_PARENT])))
            for tid in threads:
                if tid == pid or not may_be_new(tid) or not (new_process or pid in known or tid in known):
                    continue
                fields = self._stat(_of_thread(tid))
                if fields and (is_new(int(fields[_START])) or _is_another(known, tid, int(fields[_START]))):
                    found.append(Newcomer(Task(tid, int(fields[_START])), pid))
        return sorted(found, key=lambda newcomer: (newcomer.task.start, newcomer.task.tid))

    def _may_have_gone_round(self) -> bool:
        """Whether as many tasks were made as there are ids."""
        forks, self._forks = self._forks, self._read_forks()
        return self._forks - forks >= self._pid_max

    def _read_forks(self) -> int:
        with open(f"{self._root}/stat", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("processes "))

    def _read_last_pid(self) -> int:
        with open(f"{self._root}/loadavg", encoding="ascii") as file:
            return int(file.read().rpartition(" ")[2])

    def _stat(self, path: str) -> list[str]:
        """The fields of ``stat`` after the name."""
        try:
            descriptor = os.open(f"{self._root}/{path}/stat", os.O_RDONLY)
        except OSError:
            return []
        try:
            text = os.read(descriptor, 4096)
        except OSError:
            return []
        finally:
            os.close(descriptor)
        return text.rpartition(b")")[2].decode().split()

    def _status(self, tid: int) -> dict[str, str] | None:
        try:
            with open(f"{self._root}/{tid}/status", "rb") as file:
                return dict(_pairs(file.read(_HEAD_OF_STATUS).decode(errors="surrogateescape")))
        except OSError:
            return None


def _of_thread(tid: int) -> str:
    """Where a thread's own ``stat`` is: for the one in ``/proc/TID`` the kernel adds up all threads of the process."""
    return f"{tid}/task/{tid}"


def _is_another(known: Mapping[int, Assignment], tid: int, start: int) -> bool:
    """Whether a known id is now the id of another task."""
    return tid in known and known[tid].task.start != start


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    # A task's name may hold every other break of lines.
    for line in text.split("\n"):
        key, separator, value = line.partition(":")
        if separator:
            yield key, value.strip()
