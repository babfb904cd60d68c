# SPDX-License-Identifier: Apache-2.0
"""Thousands of threads are moved, and threads that are born meanwhile are not left behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.functional.resctrl_client.mounted import PATIENCE
from tests.kernel.limits import patiently
from tools.lab.processes import wait_until
from vmqos.agent.act import move_tasks
from vmqos.agent.act.move_tasks import TaskGroup
from vmqos.hypervisor import processes, vm_tasks
from vmqos.hypervisor.exceptions import ProcessVanished
from vmqos.hypervisor.model import VirtualMachine
from vmqos.resctrl import tasks
from vmqos.resctrl.filesystem import Filesystem

pytestmark = [pytest.mark.guest(machines=("cascade-lake",), kernels=("6.12",)), pytest.mark.long]

MANY = 2000
STORMS, STORM, ENDING = 3, 600, 3
SOURCES = Path(__file__).parent

Starter = Callable[..., AbstractContextManager[subprocess.Popen[str]]]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of ``threads`` and ``heir``, built: Python takes ten times as long to start a thread."""
    directory = tmp_path_factory.mktemp("programs")
    for name in ("threads", "heir"):
        subprocess.run(["gcc", "-pthread", "-o", str(directory / name), str(SOURCES / f"{name}.c")], check=True)
    return directory


@pytest.fixture
def threads(programs: Path) -> Starter:
    """Starts a process that waits for ``go`` before it starts its threads."""

    @contextlib.contextmanager
    def start(*arguments: int) -> Iterator[subprocess.Popen[str]]:
        command = [str(programs / "threads"), *map(str, arguments)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    return start


def go(process: subprocess.Popen[str], until: str) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    wait_for(process, until)


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    while (line := process.stdout.readline()) != f"{word}\n":
        assert line, "the process ended"


def wait_for_the_dead(process: subprocess.Popen[str], started: int) -> None:
    """Return when every thread that is to end has ended: the last ones may be at it when all have been started."""
    living = 1 + started - started // ENDING
    wait_until(lambda: len(processes.tasks(process.pid)) == living, f"{living} threads being left", PATIENCE)


@pytest.fixture
def group(fs: Filesystem) -> str:
    """An empty control group."""
    patiently.create(fs, "vmqos.many")
    return "vmqos.many"


def groups_of(pid: int) -> dict[str, int]:
    """How many threads of a process the kernel has in each control group."""
    found: dict[str, int] = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            control = Path(f"/proc/{pid}/task/{tid}/cpu_resctrl_groups").read_text().split()[0]
            found[control] = found.get(control, 0) + 1
    return found


def test_thousands_of_threads_move_at_once_and_back(fs: Filesystem, group: str, threads: Starter) -> None:
    with threads(MANY) as process:
        go(process, "over")
        tids = frozenset(processes.tasks(process.pid))
        assert tasks.move(fs, group, tids) == tids
        assert groups_of(process.pid) == {"res:vmqos.many": MANY + 1}
        assert tasks.read_tasks(fs, group) == tids
        assert tasks.move(fs, "", tids) == tids
        assert tasks.read_tasks(fs, group) == set()


def test_the_dead_among_thousands_keep_nobody_back(fs: Filesystem, group: str, threads: Starter) -> None:
    with threads(MANY, ENDING) as process:
        go(process, "over")
        wait_for_the_dead(process, MANY)
        assert process.pid in processes.tasks(process.pid)
        # Threads' ids follow each other here; those that have ended leave holes.
        living = frozenset(processes.tasks(process.pid))
        dead = frozenset(range(min(living), max(living))) - living - everybody()
        assert len(dead) > MANY // (2 * ENDING)
        assert tasks.move(fs, group, living | dead) == living
        assert groups_of(process.pid) == {"res:vmqos.many": len(living)}


def everybody() -> set[int]:
    """The ids of all threads that there are."""
    found = set[int]()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        # A worker of the kernel's may have ended since.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update(map(int, os.listdir(f"/proc/{pid}/task")))
    return found


def test_threads_born_while_the_vm_is_moved_are_moved_too(fs: Filesystem, group: str, threads: Starter) -> None:
    for _ in range(STORMS):
        with threads(STORM, ENDING) as process:
            vm = VirtualMachine("u", "storm", 1, processes.of_pid(process.pid), None, False, None)
            go(process, "begun")
            placed = move_tasks.place(fs, TaskGroup(group), partial(vm_tasks.all_tasks, vm))
            assert placed.in_place
            wait_for(process, "over")
            wait_for_the_dead(process, STORM)
            # What the loop could not know is the next audit's.
            audited = move_tasks.place(fs, TaskGroup(group), partial(vm_tasks.all_tasks, vm))
            assert audited.in_place == audited.tasks
            assert groups_of(process.pid) == {"res:vmqos.many": len(audited.tasks)}


def test_a_process_that_got_the_vms_pid_is_not_taken_for_the_vm(programs: Path, threads: Starter) -> None:
    with threads(1) as process:
        vm = VirtualMachine("u", "short-lived", 1, processes.of_pid(process.pid), None, False, None)
        with vm_tasks.lister(vm) as list_tasks:
            assert list_tasks() == {process.pid}
            process.kill()
            process.wait()
            with heir(programs, process.pid):
                assert processes.tasks(process.pid) == {process.pid}
                with pytest.raises(ProcessVanished):
                    list_tasks()


@contextlib.contextmanager
def heir(programs: Path, pid: int) -> Iterator[None]:
    """Another process with the PID of one that has ended."""
    command = [str(programs / "heir"), str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        wait_for(process, "here")
        yield
