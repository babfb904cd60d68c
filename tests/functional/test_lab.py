# SPDX-License-Identifier: Apache-2.0
"""The lab itself: what the other functional tests and ``tools/demo`` stand on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.functional.conftest import MakeVm, WaitFor
from tools.lab import processes, workspace
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.workspace import CHECKOUT, Workspace

OWNER = """
import sys, time
from tools.lab import vms
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.workspace import Workspace
workspace = Workspace()
daemon = PrivateLibvirt(workspace)
daemon.start()
vm = vms.Vm(name="orphan", flavor=vms.Flavor("any"))
vms.start(daemon.connect(), vm)
print(workspace.path, daemon.pid, (daemon.run_dir / "orphan.pid").read_text(), flush=True)
time.sleep(600)
"""

RESTARTER = """
import shutil, threading
from pathlib import Path
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.workspace import Workspace

def replace_accounts():
    # As useradd and groupadd do.
    for name in ("passwd", "group"):
        other = Path("/etc", f"{name}+")
        shutil.copy(Path("/etc", name), other)
        other.rename(Path("/etc", name))

def keep_replacing():
    while not over.wait(0.001):
        replace_accounts()

over = threading.Event()
with Workspace() as workspace:
    daemon = PrivateLibvirt(workspace)
    daemon.start()
    daemon.stop()
    replace_accounts()
    daemon.start()
    daemon.stop()
    thread = threading.Thread(target=keep_replacing)
    thread.start()
    try:
        daemon.start()
    finally:
        over.set()
        thread.join()
    print(len(daemon.connection().listAllDomains()), "VMs", flush=True)
    daemon.stop()
"""
IN_AN_ETC_OF_ITS_OWN = """set -e
cp -a /etc "$1"
# Without the accounts that libvirt insists on, and with its directory.
sed -i -e /^libvirt-qemu:/d -e /^kvm:/d "$1/etc/passwd" "$1/etc/group"
mkdir -p "$1/etc/libvirt"
mount --bind "$1/etc" /etc
shift
exec "$@"
"""


def test_a_vm_has_the_tasks_that_a_nova_vm_has(make_vm: MakeVm, wait_for: WaitFor) -> None:
    vm = make_vm({"hw:cache_ways": "2"}, vcpus=2)

    def cpus() -> set[str]:
        return {name.partition("/")[0] for name in vm.tasks().values() if name.startswith("CPU")}

    # A thread gives itself its name.
    wait_for(lambda: {"IO iothread1", "IO mon_iothread"} <= set(vm.tasks().values()), "the threads for I/O")
    wait_for(lambda: cpus() == {"CPU 0", "CPU 1"}, "those of the vCPUs")


def test_vms_survive_a_restart_of_libvirtd(libvirt_host: PrivateLibvirt, make_vm: MakeVm) -> None:
    vm = make_vm()
    before = vm.pid
    libvirt_host.kill()
    libvirt_host.start()
    connection = libvirt_host.connect()
    assert [domain.UUIDString() for domain in connection.listAllDomains()] == [vm.uuid]
    assert vm.pid == before
    connection.close()


def test_the_host_sees_nothing_of_the_private_libvirtd(libvirt_host: PrivateLibvirt, make_vm: MakeVm) -> None:
    vm = make_vm()
    assert not Path("/run/libvirt/qemu", f"{vm.name}.pid").exists()
    namespace = {kind: os.readlink(f"/proc/{vm.pid}/ns/{kind}") for kind in ("mnt", "net", "cgroup")}
    assert all(os.readlink(f"/proc/self/ns/{kind}") != theirs for kind, theirs in namespace.items())


def test_a_private_libvirtd_can_be_called_otherwise_than_the_host() -> None:
    with Workspace() as opened:
        daemon = PrivateLibvirt(opened, hostname="compute-2")
        daemon.start()
        assert daemon.connection().getHostname() == "compute-2" != os.uname().nodename
        daemon.stop()


def test_a_private_libvirtd_starts_again_though_the_hosts_accounts_were_and_are_replaced(tmp_path: Path) -> None:
    # This machine's accounts stay as they are: the replaced ones are those of another mount namespace.
    command = [
        "unshare",
        "--mount",
        "--",
        "sh",
        "-c",
        IN_AN_ETC_OF_ITS_OWN,
        "sh",
        tmp_path,
        sys.executable,
        "-c",
        RESTARTER,
    ]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0 VMs\n"), done.stderr


def test_an_owner_that_is_killed_leaves_nothing(wait_for: WaitFor) -> None:
    with _owner() as (owner, path, pids):
        owner.kill()
        wait_for(lambda: not path.exists(), "the workspace's removal")
    _assert_nothing_is_left(path, pids)


def test_what_owner_and_reaper_left_is_removed_at_the_next_start(wait_for: WaitFor) -> None:
    with _owner() as (owner, path, pids):
        reaper = [
            pid for pid in processes.all_pids() if processes.arguments(pid)[-2:] == ["tools.lab.reaper", str(path)]
        ]
        # Once both are dead, another worker's start may remove it at any time.
        for pid in (*reaper, owner.pid):
            os.kill(pid, signal.SIGSTOP)
        assert path.exists()
        for pid in (*reaper, owner.pid):
            os.kill(pid, signal.SIGKILL)
        owner.wait()
        workspace.remove_stale()
        wait_for(lambda: not path.exists(), "the workspace's removal")
    _assert_nothing_is_left(path, pids)


@contextlib.contextmanager
def _owner() -> Iterator[tuple[subprocess.Popen[str], Path, list[int]]]:
    """A process with a workspace, a libvirtd and a VM; the workspace, and the PIDs of the latter two."""
    with subprocess.Popen([sys.executable, "-c", OWNER], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        path, *pids = owner.stdout.readline().split()
        yield owner, Path(path), [int(pid) for pid in pids]
        owner.kill()


def _assert_nothing_is_left(path: Path, pids: list[int]) -> None:
    assert len(pids) == 2
    assert not any(_runs(pid) for pid in pids)
    assert str(path) not in Path("/proc/self/mountinfo").read_text(errors="replace")
    assert not [found for found in workspace.cgroups() if found.name == path.name]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
