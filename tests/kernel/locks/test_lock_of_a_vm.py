# SPDX-License-Identifier: Apache-2.0
"""A locked region inside a VM: real QEMU processes under a real libvirtd, on the kernel's own regions."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import libvirt
import libvirt_qemu
import pytest

from tests.kernel.locks.conftest import Command, masks
from tools.lab import vms
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.workspace import Workspace
from vmqos.resctrl.topology import parse_cpu_list

pytestmark = [pytest.mark.guest(machines=("broadwell", "goldmont")), pytest.mark.feature("lock")]

SIZE = 262144
DEVICE = "/dev/pseudo_lock/vmqos.lock-table"
ALLOWED = (*(f"/dev/{name}" for name in ("null", "full", "zero", "random", "urandom", "ptmx", "kvm")), DEVICE)
"""What libvirt lets QEMU open below /dev: its default, and one lock."""
CGROUPS = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def no_cgroups() -> Iterator[None]:
    """No controllers for any cgroup: libvirt then makes none, and QEMU may open what its user may."""
    files = sorted(CGROUPS.rglob("cgroup.subtree_control"), key=lambda file: -len(file.parts))
    controllers = {file: file.read_text().split() for file in files}
    # A cgroup keeps what those below it hand on (Documentation/admin-guide/cgroup-v2.rst).
    for file in files:
        file.write_text(" ".join(f"-{name}" for name in controllers[file]))
    yield
    for file in reversed(files):
        file.write_text(" ".join(f"+{name}" for name in controllers[file]))


@pytest.fixture(scope="module")
def _libvirt(request: pytest.FixtureRequest) -> Iterator[PrivateLibvirt]:
    """A libvirtd that keeps QEMU from devices, unless an indirect parameter says ``False``."""
    guarded = getattr(request, "param", True)
    with contextlib.nullcontext() if guarded else no_cgroups(), Workspace() as workspace:
        daemon = PrivateLibvirt(workspace)
        with (workspace.path / "etc/qemu.conf").open("a") as conf:
            conf.write(f"cgroup_device_acl = {json.dumps(ALLOWED)}\n")
        daemon.start()
        yield daemon
        daemon.stop()


@pytest.fixture
def host(_libvirt: PrivateLibvirt, root: Path) -> Iterator[PrivateLibvirt]:
    """libvirt, whose VMs are gone before the locks go."""
    yield _libvirt
    for domain in _libvirt.connection().listAllDomains():
        vms.remove(_libvirt.connection(), domain.UUIDString())


@pytest.fixture
def command(host: PrivateLibvirt, tmp_path: Path) -> Command:
    config = tmp_path / "vmqos.conf"
    config.write_text(f"[resctrl]\npath = /sys/fs/resctrl\n[libvirt]\nuri = {host.uri}\n")
    return Command(config)


@pytest.fixture
def create(root: Path) -> tuple[str, ...]:
    cache = (root / "schemata").read_text().strip()[:2]
    return ("--cache", f"{cache}:1", "--size", "256K", "--vm")


def define(host: PrivateLibvirt, **fields: object) -> libvirt.virDomain:
    vm = vms.Vm("locked", vms.Flavor("test"), vcpus=2, **fields)  # type: ignore[arg-type]
    return vms.define(host.connection(), vm)


def start(domain: libvirt.virDomain) -> None:
    # Its firmware takes no time from the emulated CPU, and its threads are there all the same.
    domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)


def pid_of(host: PrivateLibvirt) -> int:
    return int((host.run_dir / "locked.pid").read_text())


def mapped(pid: int, device: str) -> int:
    """How many bytes of a device a process has mapped."""
    lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if line.endswith(f" {device}")]
    return sum(int(end, 16) - int(begin, 16) for begin, _, end in (line[0].partition("-") for line in lines))


def assert_confined(pid: int, cpus: str) -> None:
    """QEMU's main thread and its vCPUs run on these CPUs alone."""
    threads: dict[int, str] = {}
    for path in Path(f"/proc/{pid}/task").iterdir():
        # A worker of QEMU's may have ended since.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            threads[int(path.name)] = (path / "comm").read_text()
    confined = [tid for tid, name in threads.items() if tid == pid or name.startswith("CPU ")]
    assert len(confined) == 3
    assert all(os.sched_getaffinity(tid) <= parse_cpu_list(cpus) for tid in confined)


def test_a_vm_that_is_defined_has_the_region_when_it_starts(
    host: PrivateLibvirt, command: Command, create: tuple[str, ...]
) -> None:
    domain = define(host)
    made = command.read("create", "table", *create, domain.UUIDString())
    assert made["vm"]["plugged"] is False and made["users"] == []
    assert f"mem-path={DEVICE}" in domain.XMLDesc()
    start(domain)
    pid = pid_of(host)
    assert mapped(pid, made["device"]) == SIZE
    assert_confined(pid, made["cpus"])
    (user,) = command.read("show", "table")["users"]
    assert (user["pid"], user["vm"]) == (pid, domain.UUIDString())
    assert f"of VM {domain.UUIDString()}" in command.refusal("remove", "table")
    assert mapped(pid, made["device"]) == SIZE
    domain.destroy()
    removed = command("remove", "table")
    assert removed.returncode == 0 and "definition of VM locked" in removed.stdout
    assert "pseudo_lock" not in domain.XMLDesc()
    start(domain)


def test_a_vm_that_runs_can_not_open_a_device_that_came_after_its_start(
    root: Path, host: PrivateLibvirt, command: Command, create: tuple[str, ...]
) -> None:
    domain = define(host)
    start(domain)
    before, defined = masks(root), domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    told = command.refusal("create", "table", *create, domain.UUIDString())
    assert "Operation not permitted" in told and "--next-start" in told
    assert (masks(root), domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)) == (before, defined)
    assert not Path(DEVICE).exists()


@pytest.mark.parametrize("_libvirt", [False], indirect=True, ids=["unguarded"])
def test_a_vm_that_runs_has_the_region_at_once_and_when_it_starts_again(
    host: PrivateLibvirt, command: Command, create: tuple[str, ...]
) -> None:
    domain = define(host)
    start(domain)
    pid = pid_of(host)
    made = command.read("create", "table", *create, domain.UUIDString())
    assert made["vm"]["plugged"] is True
    assert mapped(pid, made["device"]) == SIZE
    assert_confined(pid, made["cpus"])
    assert [user["vm"] for user in made["users"]] == [domain.UUIDString()]
    domain.destroy()
    start(domain)
    assert mapped(pid_of(host), made["device"]) == SIZE


def test_a_vm_that_runs_can_be_left_as_it_is_until_it_starts_again(
    host: PrivateLibvirt, command: Command, create: tuple[str, ...]
) -> None:
    domain = define(host)
    start(domain)
    made = command.read("create", "table", *create, domain.UUIDString(), "--next-start")
    assert made["vm"]["plugged"] is False
    assert mapped(pid_of(host), made["device"]) == 0
    assert len(os.sched_getaffinity(pid_of(host))) == os.cpu_count()
    domain.destroy()
    start(domain)
    assert mapped(pid_of(host), made["device"]) == SIZE


def test_a_vm_that_is_pinned_elsewhere_is_refused_and_nothing_is_touched(
    root: Path, host: PrivateLibvirt, command: Command, create: tuple[str, ...]
) -> None:
    domain = define(host, cputune="<vcpupin vcpu='1' cpuset='0'/>")
    before, defined = masks(root), domain.XMLDesc()
    told = command.refusal("create", "table", *create, domain.UUIDString())
    assert "its pins keep vCPU 1 off the CPUs of" in told
    assert (masks(root), domain.XMLDesc()) == (before, defined)


def test_where_qemu_refuses_the_device_everything_is_taken_back(
    root: Path, host: PrivateLibvirt, command: Command, create: tuple[str, ...]
) -> None:
    domain = define(host)
    start(domain)
    taken = {"qom-type": "memory-backend-ram", "id": "vmqos.lock-table", "size": 4096}
    libvirt_qemu.qemuMonitorCommand(domain, json.dumps({"execute": "object-add", "arguments": taken}), 0)
    before, defined = masks(root), domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    told = command.refusal("create", "table", *create, domain.UUIDString())
    assert "QEMU refused object-add" in told and "cgroup_device_acl" in told
    assert (masks(root), domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)) == (before, defined)
    assert len(os.sched_getaffinity(pid_of(host))) == os.cpu_count()
    assert not Path(DEVICE).exists()


def test_a_qemu_whose_main_thread_is_not_confined_is_refused_by_the_kernel(
    host: PrivateLibvirt, command: Command, create: tuple[str, ...]
) -> None:
    domain = define(host)
    made = command.read("create", "table", *create, domain.UUIDString())
    xml = domain.XMLDesc().replace(f"<emulatorpin cpuset='{made['vm']['emulatorpin']}'/>", "")
    assert "emulatorpin" not in xml
    host.connection().defineXML(xml)
    with pytest.raises(libvirt.libvirtError, match="Invalid argument"):
        start(domain)
