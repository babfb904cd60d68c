# SPDX-License-Identifier: Apache-2.0
"""The lab itself: what the other functional tests and ``tools/demo`` stand on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.functional.conftest import MakeVm, WaitFor
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.workspace import CHECKOUT

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


def test_a_vm_has_the_tasks_that_a_nova_vm_has(make_vm: MakeVm) -> None:
    vm = make_vm({"hw:cache_ways": "2"}, vcpus=2)
    names = set(vm.tasks().values())
    assert {"IO iothread1", "IO mon_iothread"} <= names
    assert {name.partition("/")[0] for name in names if name.startswith("CPU")} == {"CPU 0", "CPU 1"}


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


def test_an_owner_that_is_killed_leaves_nothing(wait_for: WaitFor) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    path, daemon, vm = owner.stdout.readline().split()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    wait_for(lambda: not Path(path).exists(), "the workspace's removal")
    assert not any(_runs(int(pid)) for pid in (daemon, vm))
    assert path not in Path("/proc/self/mountinfo").read_text()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{Path(path).name}"))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
