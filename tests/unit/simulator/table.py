# SPDX-License-Identifier: Apache-2.0
"""Machines for unit tests: processes that a test makes up, a clock that it moves."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from itertools import count

import pytest

from vmqos.simulator.hardware.profiles import PROFILES, Profile
from vmqos.simulator.hardware.tasks import Assignment, Newcomer, Task, Usage
from vmqos.simulator.hardware.topology import regular
from vmqos.simulator.kernel.tree import Caller, File
from vmqos.simulator.machine import Machine

ROOT = Caller()


class ProcessTable:
    """A table of processes in the place of ``/proc``."""

    def __init__(self) -> None:
        self.tasks: dict[int, Task] = {}
        self._leaders: dict[int, int] = {}
        self.uids: dict[int, tuple[int, int]] = {}
        self.usages: dict[str, Usage] = {}
        self._new: list[Newcomer] = []
        self._starts = count(100)

    def start(self, tid: int, *, tgid: int | None = None, parent: int = 1, uid: int = 0) -> Task:
        """A process, or a thread of one."""
        task = Task(tid, next(self._starts))
        self.tasks[tid] = task
        self.uids[tid] = (uid, uid)
        self._leaders[tid] = tgid or tid
        self._new.append(Newcomer(task, tgid or parent))
        return task

    def end(self, tid: int) -> None:
        """Let a task be gone."""
        del self.tasks[tid]

    def find(self, tid: int) -> Task | None:
        return self.tasks.get(tid)

    def alive(self, tid: int) -> bool:
        return tid in self.tasks

    def newcomers(self, known: Mapping[int, Assignment]) -> list[Newcomer]:
        new, self._new = self._new, []
        return new

    def tids(self) -> list[int]:
        return sorted(self.tasks)

    def processes(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for tid in self.tasks:
            found.setdefault(self._leaders[tid], []).append(tid)
        return found

    def owners(self, tid: int) -> tuple[int, int] | None:
        return self.uids.get(tid)

    def usage(self, path: str) -> Usage | None:
        return self.usages.get(path)


class Bench:
    """A mounted machine, and what a test does to it in few words."""

    def __init__(self, profile: str | Profile = "cascade-lake", options: str = "") -> None:
        chosen = PROFILES[profile] if isinstance(profile, str) else profile
        self.table = ProcessTable()
        self.now = 1000.0
        self.machine = Machine(chosen, self.table, lambda: self.now)
        self.machine.mount(options)

    def read(self, path: str) -> str:
        node = self.machine.find(path)
        assert isinstance(node, File)
        return self.machine.read(node)

    def write(self, path: str, data: str, caller: Caller = ROOT) -> int:
        node = self.machine.find(path)
        assert isinstance(node, File)
        return self.machine.write(node, data.encode("latin-1"), caller)

    def refused(self, path: str, data: str, code: int = errno.EINVAL, caller: Caller = ROOT) -> str:
        """What the kernel says of a write that it must refuse.

        :param code: with which error.
        """
        with pytest.raises(OSError) as refused:
            self.write(path, data, caller)
        assert refused.value.errno == code
        return self.status

    def mkdir(self, path: str, permissions: int = 0o755, caller: Caller = ROOT) -> None:
        self.machine.mkdir(path, permissions, caller)

    @property
    def status(self) -> str:
        return self.read("info/last_cmd_status")


def small(profile: Profile) -> Profile:
    """The same machine with two sockets of two CPUs."""
    topology = regular(sockets=2, cores=2, threads=1, l3_size=16 << 20, l2_size=4 << 20, l3_ways=16, l2_ways=16)
    return replace(profile, topology=topology)
