# SPDX-License-Identifier: Apache-2.0
"""Finding a VM's QEMU: seen on processes that are started with QEMU's arguments."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid as uuids
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vmqos.hypervisor import cgroup, exceptions, processes, qemu_process
from vmqos.hypervisor.domain_xml import DomainDescription

StartQemu = Callable[[str], int]


def domain(uuid: str, name: str = "vm", uid: int | None = None) -> DomainDescription:
    return DomainDescription(uuid, name, 7, False, None, uid=uid)


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
    assert qemu_process.by_pid_file(domain(uuid, "vm"), str(tmp_path)) == processes.of_pid(pid)


@pytest.mark.parametrize("content", [None, "", "x", "-1", "0", "1", "99999999", "1 2", "\u0661"])
def test_a_pid_file_without_a_process_leads_nowhere(uuid: str, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "vm.pid").write_text(content)
    assert qemu_process.by_pid_file(domain(uuid, "vm"), str(tmp_path)) is None


def test_a_pid_file_that_leads_to_another_vm_is_not_followed(start_qemu: StartQemu, uuid: str, tmp_path: Path) -> None:
    start_qemu(uuid)
    (tmp_path / "vm.pid").write_text(str(start_qemu(str(uuids.uuid4()))))
    assert qemu_process.by_pid_file(domain(uuid, "vm"), str(tmp_path)) is None


def test_a_name_never_leads_out_of_the_run_directory(start_qemu: StartQemu, uuid: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "vm.pid").write_text(str(start_qemu(uuid)))
    assert qemu_process.by_pid_file(domain(uuid, "../vm"), str(tmp_path / "run")) is None


def test_its_arguments_give_it_away(start_qemu: StartQemu, uuid: str) -> None:
    pid = start_qemu(uuid)
    start_qemu(str(uuids.uuid4()))
    assert qemu_process.by_search(domain(uuid)) == processes.of_pid(pid)


def test_of_several_the_first_started_is_it(start_qemu: StartQemu, uuid: str) -> None:
    first, second = start_qemu(uuid), start_qemu(uuid)
    found = qemu_process.by_search(domain(uuid))
    assert found is not None
    assert found.start_time == min(processes.of_pid(pid).start_time for pid in (first, second))


def test_a_vm_that_does_not_run_has_none(uuid: str) -> None:
    assert qemu_process.by_search(domain(uuid)) is None


def test_a_uuid_somewhere_else_in_the_arguments_is_not_enough(uuid: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "print('ready', flush=True); input()", "-smbios", f"uuid={uuid}", uuid],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    try:
        assert qemu_process.by_search(domain(uuid)) is None
    finally:
        child.communicate(b"\n")


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """The cgroups of VMs that processes are in, by PID; what the kernel says is seen in the functional tests."""
    found: dict[int, str] = {}
    monkeypatch.setattr(cgroup, "vm_cgroup", found.get)
    return found


OWN = r"/sys/fs/cgroup/machine.slice/machine-qemu\x2d7\x2dvm.scope"
OTHERS = r"/sys/fs/cgroup/machine.slice/machine-qemu\x2d77\x2dvm.scope"


def test_a_process_in_the_vms_cgroup_is_believed_without_its_arguments(
    start_qemu: StartQemu, uuid: str, tmp_path: Path, folders: dict[int, str]
) -> None:
    hides = start_qemu("hidden")
    folders[hides] = OWN
    (tmp_path / "vm.pid").write_text(f"{hides}\n")
    assert qemu_process.by_pid_file(domain(uuid), str(tmp_path)) == processes.of_pid(hides)


def test_a_process_in_another_vms_cgroup_is_not_believed_whatever_it_says(
    start_qemu: StartQemu, uuid: str, tmp_path: Path, folders: dict[int, str]
) -> None:
    pretends = start_qemu(uuid)
    folders[pretends] = OTHERS
    (tmp_path / "vm.pid").write_text(f"{pretends}\n")
    assert qemu_process.by_pid_file(domain(uuid), str(tmp_path)) is None
    assert qemu_process.by_search(domain(uuid)) is None


def test_a_process_in_the_vms_cgroup_goes_before_one_that_was_started_first(
    start_qemu: StartQemu, uuid: str, folders: dict[int, str]
) -> None:
    start_qemu(uuid)
    real = start_qemu(uuid)
    folders[real] = OWN
    assert qemu_process.by_search(domain(uuid)) == processes.of_pid(real)


def test_a_process_of_another_user_than_the_vms_is_not_believed(start_qemu: StartQemu, uuid: str) -> None:
    pid = start_qemu(uuid)
    assert qemu_process.by_search(domain(uuid, uid=os.getuid() + 1)) is None
    assert qemu_process.by_search(domain(uuid, uid=os.getuid())) == processes.of_pid(pid)


def test_a_search_that_takes_too_long_is_given_up(uuid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu_process, "LONGEST_SEARCH", -1.0)
    with pytest.raises(exceptions.SearchTooLong, match=uuid):
        qemu_process.by_search(domain(uuid))


def test_a_pid_file_that_is_no_file_is_not_read(start_qemu: StartQemu, uuid: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.pid")
    (tmp_path / "real").write_text(str(start_qemu(uuid)))
    (tmp_path / "link.pid").symlink_to(tmp_path / "real")
    (tmp_path / "folder.pid").mkdir()
    for name in ("fifo", "link", "folder"):
        assert qemu_process.by_pid_file(domain(uuid, name), str(tmp_path)) is None
