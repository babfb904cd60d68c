# SPDX-License-Identifier: Apache-2.0
"""Every thread that works for a VM is where the VM is: the kernel's own, and those that come and go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, SHARED_3, group
from tests.functional.conftest import MakeVm, WaitFor
from tests.kernel.agent import eyes
from tests.kernel.agent.kernel_resctrl import KernelResctrl
from tools.lab import vms
from tools.lab.agent import Agent
from tools.lab.workspace import Workspace

pytestmark = pytest.mark.guest(machines=("milan-kvm",), kernels=("6.12",))


def test_kvms_timer_thread_goes_where_its_vm_goes(make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    vm = make_vm()
    wait_for_vm(vm, "none")
    (timer,) = vm.kernel_threads()
    assert timer not in vm.tasks()
    assert eyes.group_of(timer) == ("", group(vm))
    vm.change_flavor(vms.Flavor("exclusive", EXCLUSIVE_2))
    wait_for_vm(vm, "kept")
    assert eyes.group_of(timer) == (group(vm), "")
    vm.change_flavor(vms.Flavor("shared", SHARED_3))
    wait_for_vm(vm, "kept", policy="shared")
    assert eyes.group_of(timer) == ("vmqos.shared-ways3", group(vm))


def test_vhost_workers_are_born_in_the_group(
    agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept")
    vm.domain.attachDeviceFlags('<vsock model="virtio"><cid auto="yes"/></vsock>', libvirt.VIR_DOMAIN_AFFECT_LIVE)
    workers = [tid for tid, name in vm.tasks().items() if name.startswith("vhost-")]
    assert workers, f"no vhost worker among {vm.tasks()}"
    assert eyes.groups_of(workers) == {(group(vm), "")}
    wait_for(
        lambda: agent.get(f"/v1/vms/{vm.uuid}")["tasks"] == len(vm.tasks()) + len(vm.kernel_threads()),
        "the agent counting all tasks",
    )
    wait_for_vm(vm, "kept")


def test_hot_plugged_vcpus_and_iothreads_are_born_in_the_group(make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    vm = make_vm(EXCLUSIVE_2, vcpus=1, max_vcpus=2)
    wait_for_vm(vm, "kept")
    before = set(vm.tasks())
    vm.domain.setVcpusFlags(2, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    vm.domain.addIOThread(7, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    born = {tid: name for tid, name in vm.tasks().items() if tid not in before}
    assert any(name.startswith("CPU 1/") for name in born.values()), born
    assert any(name == "IO iothread7" for name in born.values()), born
    assert eyes.groups_of(born) == {(group(vm), "")}
    wait_for_vm(vm, "kept")


@pytest.fixture
def disk(workspace: Workspace) -> Iterator[Path]:
    """A disk of 16 MiB with something on all of it."""
    path = workspace.path / "disk.raw"
    path.write_bytes(b"16 bytes of data" * (1 << 20))
    yield path
    path.unlink()


@pytest.mark.long
def test_threads_of_a_block_job_are_born_in_the_group(
    make_vm: MakeVm, wait_for_vm: WaitForVm, disk: Path, resctrl: KernelResctrl
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept")
    vm.domain.attachDeviceFlags(
        f'<disk type="file" device="disk"><driver name="qemu" type="raw" io="threads" iothread="1"/>'
        f'<source file="{disk}"/><target dev="vda" bus="virtio"/></disk>',
        libvirt.VIR_DOMAIN_AFFECT_LIVE,
    )
    before = set(vm.tasks())
    copy = disk.with_suffix(".copy")
    vm.domain.blockCopy(
        "vda",
        f'<disk type="file"><source file="{copy}"/><driver type="raw"/></disk>',
        flags=libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB,
    )
    seen: dict[int, tuple[str, str]] = {}
    deadline, is_over = time.monotonic() + 60, False
    while not is_over:
        # Once more after the job: it may be over before the first look, and its threads live on for ten seconds.
        is_over = _is_ready(vm) or time.monotonic() > deadline
        for tid in set(vm.tasks()) - before:
            try:
                seen[tid] = eyes.group_of(tid)
            except (FileNotFoundError, ProcessLookupError):
                continue
    assert _is_ready(vm)
    vm.domain.blockJobAbort("vda")
    assert seen, "the job had threads of its own"
    assert set(seen.values()) == {(group(vm), "")}
    wait_for_vm(vm, "kept")


def _is_ready(vm: vms.RunningVm) -> bool:
    job = vm.domain.blockJobInfo("vda")
    return bool(job) and job["cur"] == job["end"] > 0
