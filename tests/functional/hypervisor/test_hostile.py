# SPDX-License-Identifier: Apache-2.0
"""What a QEMU that its guest has taken over, or any local user, can do to those who look at processes."""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.functional.conftest import MakeVm
from tests.functional.hypervisor.conftest import Watched
from tests.functional.hypervisor.hostile import LYING, SILENT
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.ready_programs import Start, starting
from vmqos.hypervisor import cgroup, exceptions, processes, qemu_process
from vmqos.hypervisor.domain_xml import DomainDescription
from vmqos.pseudo_lock import region_users
from vmqos.resctrl import mount

MIB = 1 << 20
A_USER = 4711

MakeFolder = Callable[[int], Path]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Python program that says a word when it is ready; gives its PID."""
    with starting() as start_program:
        yield start_program


@pytest.fixture
def make_folder() -> Iterator[MakeFolder]:
    """Make a cgroup that is called like a VM's of that number, as root and beside libvirt's own."""
    mounts = cgroup.parse_mounts(Path("/proc/self/mountinfo").read_bytes().split(b"\n"))
    # A new folder of version 1's cpuset takes no process before it has been given CPUs.
    (root, *_) = (Path(found.path) for found in mounts if not found.controllers or "pids" in found.controllers)
    parent = root / f"vmqos-hostile-{uuid4().hex}"
    parent.mkdir()
    made: list[Path] = []

    def make(number: int) -> Path:
        made.append(parent / f"qemu-{number}-vm.libvirt-qemu")
        made[-1].mkdir()
        return made[-1]

    yield make
    for folder in (*made, parent):
        remove(folder)


def remove(folder: Path) -> None:
    """A cgroup can't be removed before the last of its processes is reaped."""
    with contextlib.suppress(FileNotFoundError):
        for pid in (folder / "cgroup.procs").read_text().split():
            (folder.parents[1] / "cgroup.procs").write_text(pid)
        folder.rmdir()


def enter(folder: Path, pid: int) -> None:
    (folder / "cgroup.procs").write_text(str(pid))


def domain(uuid: str, number: int = 7) -> DomainDescription:
    return DomainDescription(uuid, "vm", number, False, None)


@contextlib.contextmanager
def at_once(seconds: float = 1.0, wait: float = 60.0) -> Iterator[None]:
    """The block takes no longer than that, and no memory to speak of.

    :param seconds: of CPU time, the kernel's for it included: those cost the same on a busy machine.
    :param wait: seconds by the clock; who waited for what never answers would wait for ever.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, used = time.monotonic(), time.process_time()
    yield
    assert time.process_time() - used < seconds
    assert time.monotonic() - began < wait
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


@pytest.mark.parametrize("size", [7 * MIB, 48 * MIB, 1024 * MIB])
def test_arguments_of_any_length_cost_no_time_and_no_memory(start: Start, size: int) -> None:
    pid = start(LYING, size, "qemu|-name|x|")
    with at_once(), pytest.raises(exceptions.ProcessTooLong, match=f"/proc/{pid}/cmdline"):
        processes.says(pid, [b"-uuid", b"u"])
    with at_once():
        assert processes.says(pid, [b"-name", b"x"])


def test_a_qemu_that_hides_its_uuid_is_found_by_its_pid_file_and_cgroup(
    start: Start, make_folder: MakeFolder, tmp_path: Path
) -> None:
    hides = start(LYING, 1024 * MIB, "")
    (tmp_path / "vm.pid").write_text(str(hides))
    assert qemu_process.by_pid_file(domain("u"), str(tmp_path)) is None
    enter(make_folder(7), hides)
    with at_once():
        assert qemu_process.by_pid_file(domain("u"), str(tmp_path)) == processes.of_pid(hides)


def test_a_vm_can_not_pass_for_another(start: Start, make_folder: MakeFolder, tmp_path: Path) -> None:
    uuid = str(uuid4())
    pretends, real = (start(LYING, MIB, f"qemu|-uuid|{uuid}|") for _ in range(2))
    enter(make_folder(8), pretends)
    (tmp_path / "vm.pid").write_text(str(pretends))
    assert qemu_process.by_pid_file(domain(uuid), str(tmp_path)) is None
    assert qemu_process.by_search(domain(uuid)) == processes.of_pid(real)
    enter(make_folder(7), real)
    assert qemu_process.by_search(domain(uuid)) == processes.of_pid(real)


def test_the_search_for_a_vm_is_not_held_up_by_others(start: Start, make_folder: MakeFolder) -> None:
    uuid = str(uuid4())
    real = start(LYING, MIB, f"qemu|-uuid|{uuid}|")
    enter(make_folder(7), real)
    for _ in range(10):
        start(LYING, 1024 * MIB, "")
    with at_once():
        assert qemu_process.by_search(domain(uuid)) == processes.of_pid(real)


def test_a_cgroup_that_a_user_made_is_no_vms(start: Start, make_folder: MakeFolder) -> None:
    folder = make_folder(7)
    pid = start(LYING, MIB, "")
    enter(folder, pid)
    assert cgroup.vm_cgroup(pid) == str(folder)
    for owned in (folder, folder.parent):
        os.chown(owned, A_USER, -1)
        assert cgroup.vm_cgroup(pid) is None
        os.chown(owned, 0, -1)
    assert cgroup.vm_cgroup(pid) == str(folder)


@pytest.mark.parametrize(
    "name", [b"a\rb", b"a\rb\x0b\x0c\x1c\x1d\x1e\x1f", b"\xc2\x85\xe2\x80\xa8\xff", b"a - cgroup2 b\n"]
)
def test_a_mount_point_of_any_name_hides_no_cgroup_and_no_resctrl(
    start: Start, make_folder: MakeFolder, tmp_path: Path, name: bytes
) -> None:
    folder = make_folder(7)
    pid = start(LYING, MIB, "")
    enter(folder, pid)
    place = os.path.join(os.fsencode(tmp_path), name)
    os.mkdir(place)
    with mounted(SILENT, place, tmp_path / "hush"):
        assert cgroup.vm_cgroup(pid) == str(folder)
        assert all(entry.path.startswith("/") for entry in mount._mounts("/proc"))
        assert os.fsdecode(place) in [entry.path for entry in mount._mounts("/proc")]


@contextlib.contextmanager
def mounted(program: str, place: bytes, *arguments: object) -> Iterator[None]:
    """A filesystem of an attacker's."""
    child = subprocess.Popen([sys.executable, "-c", program, place, *map(str, arguments)])
    try:
        deadline = time.monotonic() + 60
        while not os.path.ismount(place):
            assert child.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
        child.kill()
        child.wait()


OPENS = "file = open(__import__('sys').argv[1], 'rb'); print('ready', flush=True); input()"
MAPS = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    kept = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE)
print("ready", flush=True)
input()
"""


def test_a_device_is_known_by_its_number_wherever_it_is_and_nothing_waits(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who has no CPU for a second must not be taken for one that never answers.
    monkeypatch.setattr(region_users, "PATIENCE", 5.0)
    device, elsewhere, alike = (tmp_path / name / "pseudo_lock" / "x" for name in ("dev", "namespace", "alike"))
    for path in (device, elsewhere, alike):
        path.parent.mkdir(parents=True)
    zero = os.stat("/dev/zero").st_rdev
    for path in (device, elsewhere):
        os.mknod(path, stat.S_IFCHR | 0o600, zero)
    alike.write_bytes(bytes(4096))
    use = {start(OPENS, device), start(OPENS, elsewhere), start(MAPS, device)}
    start(OPENS, alike)
    start(MAPS, alike)
    silent = tmp_path / "silent"
    silent.mkdir()
    with mounted(SILENT, os.fsencode(silent), tmp_path / "hush"):
        start(OPENS, silent / "pseudo_lock" / "x")
        (tmp_path / "hush").touch()
        try:
            with at_once(seconds=5.0, wait=60):
                found = region_users.users(str(device))
        finally:
            (tmp_path / "hush").unlink()
    assert {user.pid for user in found} == use
    assert [user.doubt for user in found] == ["", "", ""]


def test_a_real_vm_is_found_by_its_cgroup_alone(
    watched: Watched, make_vm: MakeVm, libvirt_host: PrivateLibvirt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if QEMU hid its command line."""
    vm = make_vm()
    monkeypatch.setattr(processes, "says", lambda pid, arguments: False)
    described = watched.connection.describe(vm.uuid)
    assert described is not None and described.cgroup is not None
    assert described.process.pid == int((libvirt_host.run_dir / f"{described.name}.pid").read_text())
    assert cgroup.libvirt_id(described.cgroup) == described.libvirt_id
