# SPDX-License-Identifier: Apache-2.0
"""The tasks of real QEMU processes, in the cgroups that libvirt made for them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest

from tests.functional.conftest import MakeVm, WaitFor
from tests.functional.hypervisor.conftest import Watched
from tools.lab.private_libvirt import PrivateLibvirt
from vmqos.hypervisor import cgroup, exceptions, processes, vm_tasks
from vmqos.hypervisor.model import VirtualMachine

TWO_THREADS = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print('ready', flush=True)
input()
"""


def identities(tids: set[int]) -> list[processes.Identity]:
    """Who these threads are, as far as they are still there: QEMU's workers come and go."""
    found = []
    for tid in tids:
        with contextlib.suppress(exceptions.ProcessVanished):
            found.append(processes.identify(tid))
    return found


def describe(watched: Watched, uuid: str) -> VirtualMachine:
    described = watched.connection.describe(uuid)
    assert described is not None
    return described


@pytest.fixture
def helper() -> Iterator[int]:
    """A process of two threads."""
    child = subprocess.Popen([sys.executable, "-c", TWO_THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child.pid
    child.kill()
    child.communicate()


def test_all_threads_of_qemu_are_found(watched: Watched, make_vm: MakeVm) -> None:
    vm = make_vm(vcpus=2)
    described = describe(watched, vm.uuid)
    # QEMU's workers come and go, so two looks may differ by them.
    lasting = {tid for tid, comm in vm.tasks().items() if comm != "worker"}
    assert lasting <= vm_tasks.all_tasks(described)
    assert {one.tgid for one in identities(vm_tasks.all_tasks(described))} == {vm.pid}


def test_each_vm_has_a_cgroup_of_its_own_and_libvirtd_is_in_none(
    watched: Watched, make_vm: MakeVm, libvirt_host: PrivateLibvirt
) -> None:
    first, second = (describe(watched, make_vm().uuid) for _ in range(2))
    assert first.cgroup and second.cgroup
    assert first.cgroup != second.cgroup
    assert cgroup.processes_in(first.cgroup) == {first.process.pid}
    assert libvirt_host.pid is not None
    assert cgroup.vm_cgroup(libvirt_host.pid) is None
    assert cgroup.vm_cgroup(os.getpid()) is None


def test_a_helper_process_that_libvirt_puts_beside_qemu_is_the_vms(
    watched: Watched, make_vm: MakeVm, helper: int
) -> None:
    described = describe(watched, make_vm().uuid)
    assert described.cgroup
    emulator = next(Path(described.cgroup).glob("**/emulator"))
    # As virCgroupAddProcess does with swtpm, virtiofsd and the like (qemuExtDevicesSetupCgroup).
    (emulator / "cgroup.procs").write_text(str(helper))
    assert cgroup.processes_in(described.cgroup) == {described.process.pid, helper}
    assert cgroup.vm_cgroup(helper) == described.cgroup
    assert len(processes.tasks(helper)) == 2
    assert processes.tasks(helper) <= vm_tasks.all_tasks(described)
    # A cgroup can't be removed by libvirt while a stranger is in it.
    os.kill(helper, signal.SIGKILL)


def test_plugged_vcpus_and_io_threads_are_found(watched: Watched, make_vm: MakeVm, wait_for: WaitFor) -> None:
    vm = make_vm(vcpus=1, max_vcpus=2)
    described = describe(watched, vm.uuid)
    before = vm_tasks.all_tasks(described)
    vm.domain.setVcpusFlags(2, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    vm.domain.addIOThread(2, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    new = {one.comm for one in identities(vm_tasks.all_tasks(described) - before)}
    assert any(comm.startswith("CPU 1/") for comm in new)
    assert "IO iothread2" in new


def test_the_affinity_is_what_libvirt_pinned(watched: Watched, make_vm: MakeVm) -> None:
    vm = make_vm(cpuset="0")
    described = describe(watched, vm.uuid)
    assert processes.cpu_affinity(vm_tasks.all_tasks(described)) == {0}


def test_a_vm_that_is_killed_has_no_tasks(watched: Watched, make_vm: MakeVm, wait_for: WaitFor) -> None:
    vm = make_vm()
    described = describe(watched, vm.uuid)
    os.kill(vm.pid, signal.SIGKILL)
    wait_for(lambda: not processes.still(described.process), "QEMU's end")
    with pytest.raises(exceptions.ProcessVanished):
        vm_tasks.all_tasks(described)


def test_a_restarted_vm_is_another_process(watched: Watched, make_vm: MakeVm) -> None:
    vm = make_vm()
    first = describe(watched, vm.uuid)
    vm.domain.destroy()
    vm.domain.create()
    second = describe(watched, vm.uuid)
    assert second.process != first.process
    assert second.libvirt_id != first.libvirt_id
    assert not processes.still(first.process)
