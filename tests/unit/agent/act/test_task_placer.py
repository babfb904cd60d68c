# SPDX-License-Identifier: Apache-2.0
"""Whose tasks are left where they are; resctrl is a folder of files here, the process is real."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vmqos.agent.act import outside_time
from vmqos.agent.act.move_tasks import TaskGroup, TaskGroups
from vmqos.agent.act.outside_time import OutsideTime
from vmqos.agent.act.task_placer import Placer
from vmqos.agent.courtesy import LockShare
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.daemon.backoff import Backoff
from vmqos.host import resctrl_state
from vmqos.hypervisor import processes
from vmqos.hypervisor.model import VirtualMachine
from vmqos.resctrl.filesystem import Filesystem

UUID = "38c43823-3651-469c-b344-166d1c87d77b"
GROUP = f"vmqos.{UUID}"


class Meddled(Filesystem):
    """resctrl in which somebody who takes no lock does something right before a certain file is read."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.before: dict[tuple[str, ...], Callable[[], None]] = {}

    def read_bytes(self, *relative: str) -> bytes:
        self.before.pop(relative, lambda: None)()
        return super().read_bytes(*relative)


@pytest.fixture
def filesystem(tmp_path: Path) -> Meddled:
    for name, text in (("cbm_mask", "7ff"), ("min_cbm_bits", "1"), ("num_closids", "8"), ("shareable_bits", "0")):
        file = tmp_path / "info" / "L3" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    make_group(tmp_path)
    return Meddled(tmp_path)


def make_group(directory: Path, *tids: int) -> None:
    directory.mkdir(exist_ok=True)
    for name, text in (("mode", "shareable\n"), ("schemata", "L3:0=7ff\n")):
        (directory / name).write_text(text)
    (directory / "tasks").write_text("".join(f"{tid}\n" for tid in tids))


@pytest.fixture
def vm() -> Iterator[ObservedVm]:
    with subprocess.Popen(["sleep", "1000"]) as child:
        yield ObservedVm(VirtualMachine(UUID, "vm", 1, processes.of_pid(child.pid), None, False, None), frozenset({0}))
        child.kill()


@pytest.mark.parametrize("made", ["during the pass", "before"])
def test_a_task_that_somebody_takes_during_the_pass_is_left_to_them(
    filesystem: Meddled, vm: ObservedVm, made: str
) -> None:
    root, tid = Path(filesystem.root), vm.vm.process.pid
    make_group(root / GROUP, tid)
    if made == "before":
        make_group(root / "foreign")
    now = resctrl_state.read(filesystem)

    def take() -> None:
        make_group(root / "foreign", tid)
        make_group(root / GROUP)

    filesystem.before[GROUP, "tasks"] = take
    placer = Placer(filesystem, Backoff(1, 60))
    placer.place(now, {UUID: TaskGroups(TaskGroup(GROUP))}, {UUID}, {UUID: vm}, frozenset(), LockShare())
    assert (root / "foreign" / "tasks").read_text() == f"{tid}\n"
    assert not os.path.getsize(root / GROUP / "tasks")
    assert placer.placed[UUID].foreign == {tid} and not placer.placed[UUID].in_place


def test_a_foreign_group_that_goes_during_the_pass_is_no_news(
    filesystem: Meddled, vm: ObservedVm, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    root, tid = Path(filesystem.root), vm.vm.process.pid
    make_group(root / GROUP, tid)
    make_group(root / "foreign")
    now = resctrl_state.read(filesystem)
    filesystem.before["foreign", "tasks"] = lambda: shutil.rmtree(root / "foreign")
    placer = Placer(filesystem, Backoff(1, 60))
    placer.place(now, {UUID: TaskGroups(TaskGroup(GROUP))}, {UUID}, {UUID: vm}, frozenset(), LockShare())
    assert not (root / "foreign").exists() and placer.placed[UUID].in_place == {tid}
    assert "foreign" not in caplog.text


def outside_after_first_look(filesystem: Filesystem, vm: ObservedVm) -> OutsideTime:
    """What is known of the VM's time outside of its group after the first look at it."""
    placer = Placer(filesystem, Backoff(1, 60))
    now = resctrl_state.read(filesystem)
    placer.place(now, {UUID: TaskGroups(TaskGroup(GROUP))}, {UUID}, {UUID: vm}, frozenset(), LockShare())
    return placer.outside[UUID]


@pytest.fixture
def seven_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task has used seven nanoseconds of CPU."""
    monkeypatch.setattr(outside_time, "cpu_time", lambda tid: 7)


@pytest.mark.usefixtures("seven_each")
def test_of_a_vm_in_the_default_group_it_is_known_how_long_it_was_outside(filesystem: Meddled, vm: ObservedVm) -> None:
    root, tid = Path(filesystem.root), vm.vm.process.pid
    make_group(root, tid)
    make_group(root / GROUP)
    assert outside_after_first_look(filesystem, vm) == OutsideTime(vm.vm.process, at_start=7, is_settled=True)


@pytest.mark.usefixtures("seven_each")
@pytest.mark.parametrize("where", [GROUP, "vmqos.shared-ways2"])
def test_of_a_vm_that_is_found_in_a_group_of_ours_it_is_not(filesystem: Meddled, vm: ObservedVm, where: str) -> None:
    root, tid = Path(filesystem.root), vm.vm.process.pid
    make_group(root / GROUP)
    make_group(root / where, tid)
    found = outside_after_first_look(filesystem, vm)
    assert (found.at_start, found.later) == (None, 0)


@pytest.mark.usefixtures("seven_each")
def test_a_task_that_is_born_while_the_default_group_is_read_was_not_moved(filesystem: Meddled, vm: ObservedVm) -> None:
    root, tid = Path(filesystem.root), vm.vm.process.pid
    make_group(root / GROUP)

    def read() -> None:
        filesystem.before["", "tasks"] = lambda: make_group(root, tid)

    filesystem.before["", "tasks"] = read
    assert outside_after_first_look(filesystem, vm).at_start == 7
