# SPDX-License-Identifier: Apache-2.0
"""The host's tasks, read from ``/proc`` with as few system calls as will do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping

from vmqos.simulator.tasks import Task, Usage

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FEW = 512
_FORKS_PER_SECOND = 20000


class ProcFs:
    """Tasks of the real host.

    New tasks are found by their ids: the kernel hands ids out in ascending order and shows the last one in
    ``/proc/loadavg``. After so long a silence that the numbers may have gone round, start times decide.

    :param root: where proc is mounted.
    """

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        with open(f"{root}/sys/kernel/pid_max", encoding="ascii") as file:
            self._pid_max = int(file.read())
        self._last_pid = self._read_last_pid()
        self._looked_at = time.clock_gettime(time.CLOCK_BOOTTIME)

    def find(self, tid: int) -> Task | None:
        """The living task of that id."""
        fields = self._stat(str(tid))
        status = self._status(tid) if fields else None
        if not fields or not status:
            return None
        return Task(tid, int(status["Tgid"]), int(fields[1]), int(fields[19]))

    def alive(self, tid: int) -> bool:
        """Whether a task of that id exists."""
        return os.path.exists(f"{self._root}/{tid}")

    def newcomers(self, known: Mapping[int, int]) -> list[Task]:
        """The tasks made since the last call, the older ones first."""
        last, now = self._read_last_pid(), time.clock_gettime(time.CLOCK_BOOTTIME)
        silence, before, previous = now - self._looked_at, self._looked_at, self._last_pid
        self._looked_at = now
        trusted = silence < self._pid_max / _FORKS_PER_SECOND
        if trusted and last == previous:
            return []
        self._last_pid = last
        if not trusted:
            return self._started_since(before, known)
        count = (last - previous) % self._pid_max
        if count <= _FEW:
            candidates = [(previous + step) % self._pid_max for step in range(1, count + 1)]
        else:
            candidates = [tid for tid in self.tids() if (tid - previous - 1) % self._pid_max < count]
            candidates.sort(key=lambda tid: (tid - previous) % self._pid_max)
        return [task for tid in candidates if (task := self.find(tid))]

    def tids(self) -> list[int]:
        """Every task, process by process."""
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
        return Usage((int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * _PAGE, int(fields[36]))

    def _started_since(self, then: float, known: Mapping[int, int]) -> list[Task]:
        found = []
        for tid in self.tids():
            fields = self._stat(str(tid))
            if not fields:
                continue
            start = int(fields[19])
            if (start >= int(then * _TICKS) and tid not in known) or known.get(tid, start) != start:
                task = self.find(tid)
                if task:
                    found.append(task)
        return sorted(found, key=lambda task: (task.start, task.tid))

    def _read_last_pid(self) -> int:
        with open(f"{self._root}/loadavg", encoding="ascii") as file:
            return int(file.read().rpartition(" ")[2])

    def _stat(self, path: str) -> list[str]:
        """The fields of ``stat`` after the name, so that index 0 is the third field of proc(5)."""
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
            with open(f"{self._root}/{tid}/status", encoding="utf-8", errors="surrogateescape") as file:
                return dict(_pairs(file.read()))
        except OSError:
            return None


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            yield key, value.strip()
