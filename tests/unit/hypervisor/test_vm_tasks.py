# SPDX-License-Identifier: Apache-2.0
"""All tasks of a VM; the cgroup is a folder of files here, the processes are real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from vmqos.hypervisor import exceptions, processes, vm_tasks
from vmqos.hypervisor.model import Process, VirtualMachine

FOUR_THREADS = """
import threading
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print('ready', flush=True)
input()
"""


@pytest.fixture
def child() -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", FOUR_THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.communicate()


@pytest.fixture
def vm(child: int, tmp_path: Path) -> VirtualMachine:
    (tmp_path / "cgroup.procs").write_text(f"{child}\n")
    return VirtualMachine(
        uuid="38c43823-3651-469c-b344-166d1c87d77b",
        name="instance-00000005",
        libvirt_id=1,
        process=processes.of_pid(child),
        cgroup=str(tmp_path),
        has_cachetune=False,
        metadata=None,
    )


def test_qemus_threads_are_its_tasks(vm: VirtualMachine) -> None:
    assert len(vm_tasks.all_tasks(vm)) == 4
    assert vm_tasks.all_tasks(vm) == processes.tasks(vm.process.pid)


def test_without_a_cgroup_they_are_all(vm: VirtualMachine) -> None:
    assert vm_tasks.all_tasks(replace(vm, cgroup=None)) == processes.tasks(vm.process.pid)


def test_helpers_in_the_cgroup_belong_to_it_with_all_threads(vm: VirtualMachine, tmp_path: Path) -> None:
    (tmp_path / "emulator").mkdir()
    (tmp_path / "emulator" / "cgroup.procs").write_text(f"{os.getpid()}\n99999999\n")
    assert vm_tasks.all_tasks(vm) == processes.tasks(vm.process.pid) | processes.tasks(os.getpid())


def test_a_vm_of_too_many_threads_in_all_its_processes_is_refused(
    vm: VirtualMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MOST_THREADS", 5)
    assert len(vm_tasks.all_tasks(vm)) == 4
    helpers = [subprocess.Popen(["sleep", "100"]) for _ in range(2)]
    try:
        (tmp_path / "cgroup.procs").write_text("".join(f"{helper.pid}\n" for helper in helpers))
        with pytest.raises(exceptions.TooManyThreads, match="have 6 threads"):
            vm_tasks.all_tasks(vm)
    finally:
        for helper in helpers:
            helper.kill()
            helper.wait()


def test_a_cgroup_that_is_gone_is_no_error(vm: VirtualMachine, tmp_path: Path) -> None:
    assert len(vm_tasks.all_tasks(replace(vm, cgroup=str(tmp_path / "gone")))) == 4


def test_a_process_that_took_over_the_pid_is_not_the_vms(vm: VirtualMachine) -> None:
    taken_over = replace(vm, process=Process(vm.process.pid, vm.process.start_time - 1))
    with pytest.raises(exceptions.ProcessVanished, match=str(vm.process.pid)):
        vm_tasks.all_tasks(taken_over)


def test_they_can_be_listed_as_often_as_one_likes(vm: VirtualMachine) -> None:
    with vm_tasks.lister(vm) as list_tasks:
        assert list_tasks() == list_tasks() == processes.tasks(vm.process.pid)


def test_once_the_process_has_ended_its_directory_is_empty_for_good(vm: VirtualMachine) -> None:
    with vm_tasks.lister(vm) as list_tasks:
        assert len(list_tasks()) == 4
        os.kill(vm.process.pid, signal.SIGKILL)
        os.waitpid(vm.process.pid, 0)
        with pytest.raises(exceptions.ProcessVanished, match=str(vm.process.pid)):
            list_tasks()


def test_a_zombie_has_ended(vm: VirtualMachine) -> None:
    os.kill(vm.process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, vm.process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(exceptions.ProcessVanished, match=str(vm.process.pid)):
        vm_tasks.all_tasks(vm)
