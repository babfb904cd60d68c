# SPDX-License-Identifier: Apache-2.0
"""Finding a VM's QEMU: seen on processes that are started with QEMU's arguments."""

from __future__ import annotations

import subprocess
import sys
import uuid as uuids
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vmqos.hypervisor import processes, qemu_process

StartQemu = Callable[[str], int]


@pytest.fixture
def start_qemu() -> Iterator[StartQemu]:
    children: list[subprocess.Popen[bytes]] = []

    def start(uuid: str) -> int:
        program = "print('ready', flush=True); input()"
        child = subprocess.Popen(
            [sys.executable, "-c", program, "-name", "guest=vm,debug-threads=on", "-uuid", uuid, "-display", "none"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child.pid

    yield start
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def uuid() -> str:
    return str(uuids.uuid4())


def test_the_pid_file_leads_to_it(start_qemu: StartQemu, uuid: str, tmp_path: Path) -> None:
    pid = start_qemu(uuid)
    (tmp_path / "vm.pid").write_text(f"{pid}\n")
    assert qemu_process.by_pid_file(uuid, "vm", str(tmp_path)) == processes.of_pid(pid)


@pytest.mark.parametrize("content", [None, "", "x", "-1", "0", "1", "99999999", "1 2", "\u0661"])
def test_a_pid_file_without_a_process_leads_nowhere(uuid: str, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "vm.pid").write_text(content)
    assert qemu_process.by_pid_file(uuid, "vm", str(tmp_path)) is None


def test_a_pid_file_that_leads_to_another_vm_is_not_followed(start_qemu: StartQemu, uuid: str, tmp_path: Path) -> None:
    start_qemu(uuid)
    (tmp_path / "vm.pid").write_text(str(start_qemu(str(uuids.uuid4()))))
    assert qemu_process.by_pid_file(uuid, "vm", str(tmp_path)) is None


def test_a_name_never_leads_out_of_the_run_directory(start_qemu: StartQemu, uuid: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "vm.pid").write_text(str(start_qemu(uuid)))
    assert qemu_process.by_pid_file(uuid, "../vm", str(tmp_path / "run")) is None


def test_its_arguments_give_it_away(start_qemu: StartQemu, uuid: str) -> None:
    pid = start_qemu(uuid)
    start_qemu(str(uuids.uuid4()))
    assert qemu_process.by_command_line(uuid) == processes.of_pid(pid)


def test_of_several_the_first_started_is_it(start_qemu: StartQemu, uuid: str) -> None:
    first, second = start_qemu(uuid), start_qemu(uuid)
    found = qemu_process.by_command_line(uuid)
    assert found is not None
    assert found.start_time == min(processes.of_pid(pid).start_time for pid in (first, second))


def test_a_vm_that_does_not_run_has_none(uuid: str) -> None:
    assert qemu_process.by_command_line(uuid) is None


def test_a_uuid_somewhere_else_in_the_arguments_is_not_enough(uuid: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "print('ready', flush=True); input()", "-smbios", f"uuid={uuid}", uuid],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    try:
        assert qemu_process.by_command_line(uuid) is None
    finally:
        child.communicate(b"\n")
