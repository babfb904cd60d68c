# SPDX-License-Identifier: Apache-2.0
"""Whose tasks are found in the default group; resctrl is a folder of files here, the processes are real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from vmqos.agent.act.move_tasks import TaskGroup, TaskPlacement
from vmqos.agent.courtesy import LockShare
from vmqos.agent.observe import stray_tasks
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.observe.stray_tasks import StrayWatch
from vmqos.hypervisor import processes
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.resctrl.filesystem import Filesystem

UUID = "38c43823-3651-469c-b344-166d1c87d77b"
THREADS = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print('ready', flush=True)
input()
"""


@pytest.fixture
def vm() -> Iterator[ObservedVm]:
    """A process of two threads in a VM's place."""
    command = [sys.executable, "-c", THREADS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield ObservedVm(VirtualMachine(UUID, "vm", 1, processes.of_pid(child.pid), None, False, None), frozenset({0}))
        child.kill()


@pytest.fixture
def filesystem(tmp_path: Path) -> Filesystem:
    return Filesystem(str(tmp_path))


def default_group_has(filesystem: Filesystem, *tids: int) -> None:
    Path(filesystem.path("tasks")).write_text("".join(f"{tid}\n" for tid in sorted(tids)))


def placed(vm: ObservedVm, control: str) -> dict[str, TaskPlacement]:
    tids = frozenset(processes.tasks(vm.vm.process.pid))
    return {UUID: TaskPlacement(TaskGroup(control), tids, tids)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tasks that /proc is asked about one by one."""
    found: list[int] = []
    identify = processes.identify
    monkeypatch.setattr(processes, "identify", lambda tid: found.append(tid) or identify(tid))
    return found


def test_a_task_that_somebody_moved_back_is_a_stray(filesystem: Filesystem, vm: ObservedVm) -> None:
    watch = StrayWatch()
    default_group_has(filesystem, os.getpid())
    assert watch.look(filesystem, placed(vm, "vmqos.x"), {UUID: vm}) == set()
    default_group_has(filesystem, os.getpid(), max(processes.tasks(vm.vm.process.pid)))
    assert watch.look(filesystem, placed(vm, "vmqos.x"), {UUID: vm}) == {UUID}


def test_a_new_thread_of_a_vm_is_a_stray(filesystem: Filesystem, vm: ObservedVm, asked: list[int]) -> None:
    known = {UUID: TaskPlacement(TaskGroup("vmqos.x"), frozenset({vm.vm.process.pid}), frozenset({vm.vm.process.pid}))}
    new = max(processes.tasks(vm.vm.process.pid))
    default_group_has(filesystem, os.getpid(), new)
    assert StrayWatch().look(filesystem, known, {UUID: vm}) == {UUID}
    assert sorted(asked) == sorted([os.getpid(), new])


def test_of_the_new_threads_of_one_process_one_is_asked_for(
    filesystem: Filesystem, vm: ObservedVm, asked: list[int]
) -> None:
    default_group_has(filesystem, os.getpid(), *processes.tasks(vm.vm.process.pid))
    watch = StrayWatch()
    assert watch.look(filesystem, {}, {}) == set()
    assert sorted(asked) == sorted([os.getpid(), vm.vm.process.pid])


def test_new_processes_that_there_was_no_time_to_ask_for_are_asked_for_by_the_next_look(
    filesystem: Filesystem, vm: ObservedVm, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stray_tasks, "FEWEST", 1)
    known = {UUID: TaskPlacement(TaskGroup("vmqos.x"), frozenset({1}), frozenset({1}))}
    default_group_has(filesystem, os.getpid(), vm.vm.process.pid)
    watch, late = StrayWatch(), LockShare(0.0)
    found = [watch.look(filesystem, known, {UUID: vm}, late)]
    assert watch.is_behind and len(asked) == 1
    found.append(watch.look(filesystem, known, {UUID: vm}, late))
    assert not watch.is_behind and sorted(asked) == sorted([os.getpid(), vm.vm.process.pid])
    assert sorted(found, key=len) == [set(), {UUID}]


def test_a_look_that_gives_way_reads_nothing_and_is_made_by_the_next_pass(
    filesystem: Filesystem, vm: ObservedVm, asked: list[int]
) -> None:
    known = {UUID: TaskPlacement(TaskGroup("vmqos.x"), frozenset({1}), frozenset({1}))}
    default_group_has(filesystem, vm.vm.process.pid)
    watch = StrayWatch()
    looks = []
    for share in (LockShare(gives_way=lambda: True), LockShare()):
        looks.append((watch.look(filesystem, known, {UUID: vm}, share), watch.is_behind, len(asked)))
    assert looks == [(set(), True, 0), ({UUID}, False, 1)]


def test_of_a_vm_some_of_whose_vcpus_have_the_ways_their_threads_alone_are_strays(
    filesystem: Filesystem, vm: ObservedVm
) -> None:
    main, other = sorted(processes.tasks(vm.vm.process.pid))
    known = {UUID: replace(placed(vm, "vmqos.x")[UUID], chosen=frozenset({other}), rest=TaskGroup(""))}
    watch = StrayWatch()
    default_group_has(filesystem, os.getpid(), main)
    assert watch.look(filesystem, known, {UUID: vm}) == set()
    default_group_has(filesystem, os.getpid(), main, other)
    assert watch.look(filesystem, known, {UUID: vm}) == {UUID}


def test_tasks_of_vms_that_belong_in_the_default_group_are_none(filesystem: Filesystem, vm: ObservedVm) -> None:
    default_group_has(filesystem, *processes.tasks(vm.vm.process.pid))
    assert StrayWatch().look(filesystem, placed(vm, ""), {UUID: vm}) == set()


def test_the_threads_of_a_vm_that_is_yet_to_be_placed_are_asked_for_together(
    filesystem: Filesystem, vm: ObservedVm, asked: list[int]
) -> None:
    watch = StrayWatch()
    default_group_has(filesystem, os.getpid(), *processes.tasks(vm.vm.process.pid))
    assert watch.look(filesystem, {}, {UUID: vm}) == set()
    assert asked == [os.getpid()]
    # Once it was placed, those that are still there are noticed at once, unchanged as the file is.
    watch.forget()
    assert watch.look(filesystem, placed(vm, "vmqos.x"), {UUID: vm}) == {UUID}


def test_a_vm_that_has_just_ended_is_no_error(filesystem: Filesystem, vm: ObservedVm) -> None:
    gone = VirtualMachine(UUID, "vm", 1, Process(99999999, 1), None, False, None)
    default_group_has(filesystem, os.getpid())
    assert StrayWatch().look(filesystem, {}, {UUID: ObservedVm(gone, frozenset({0}))}) == set()


def test_kernel_threads_that_have_ended_are_forgotten() -> None:
    watch, alive = StrayWatch(), processes.of_pid(os.getpid())
    ended = {Process(alive.pid, alive.start_time - number) for number in range(1, 100)}
    watch._kernel_threads[UUID] = {alive, *ended}
    assert watch.kernel_threads(UUID) == {alive.pid} and watch._kernel_threads[UUID] == {alive}
    assert watch.kernel_threads("another") == set()
