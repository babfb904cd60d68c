# SPDX-License-Identifier: Apache-2.0
"""The functional tests' fixtures with the kernel's own resctrl, and its word on every promise.

Of ``tests/functional`` the tests themselves are taken, and the fixtures that need no change. What is different here:
``resctrl`` is the kernel's; VMs are used again, and agents start from a process that has its imports, for an emulated
CPU is slow; and wherever a test waits for a VM's promise being kept, and at its end, the kernel is asked, and pqos.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.functional.agent.conftest import UNFINISHED, WaitForVm, tree, uncounted, wait_until_told
from tests.functional.conftest import (
    NOTHING_ASKED,
    MakeAgent,
    MakeVm,
    Pace,
    WaitFor,
    _session_libvirt,
    agent,
    made_agents,
    make_agent,
    wait_for,
)
from tests.kernel.agent import eyes, groups, pqos
from tests.kernel.agent.groups import ControlGroup
from tests.kernel.agent.kernel_resctrl import ROOT, KernelResctrl
from tests.kernel.agent.pool import VmPool
from tests.kernel.agent.registers import SPLIT, L3Registers
from tests.kernel.agent.witness import Step, Witness
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.program import Preloaded
from tools.lab.vms import RunningVm
from tools.lab.workspace import Workspace
from vmqos.resctrl.filesystem import Filesystem

KEPT = ("kept", "none")
"""What the agent says of VMs with which all is well."""

KVM = Path("/dev/kvm")
"""There only if the module takes the CPU; then it works."""

MODULES = ("kvm-amd", "tun", "vhost-vsock")
"""What a host with VMs has loaded."""


@pytest.fixture(scope="session")
def workspace() -> Iterator[Workspace]:
    """The directory that everything is in."""
    for module in MODULES:
        # Where a CPU has no SVM, kvm-amd can't be loaded, and VMs are emulated.
        subprocess.run(["modprobe", "--quiet", module], check=False)
    # libvirt's mounts follow ours, as on a host with systemd.
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    with Workspace() as opened:
        yield opened


@pytest.fixture(scope="session")
def _pool(_session_libvirt: PrivateLibvirt) -> VmPool:
    return VmPool(_session_libvirt)


@pytest.fixture(scope="session")
def pace() -> Pace:
    """An emulated CPU is slow, and each look costs it more than it is worth to know a moment earlier."""
    return Pace(
        {"agent": {"audit_interval": 0.5, "full_audit_interval": 5.0, "retry_delay_min": 0.2}},
        patience=6,
        give_up=120.0,
        poll_interval=0.25,
        launch=Preloaded(["vmqos.agent.main"]),
    )


@pytest.fixture(scope="session")
def registers() -> L3Registers:
    """The registers of the L3 masks."""
    return L3Registers.open()


@pytest.fixture(scope="session")
def _session_witness() -> Witness:
    return Witness()


def is_promised(pool: VmPool, group: ControlGroup) -> bool:
    """Whether the VM of a group is a test's and wants its ways for itself."""
    promises = (eyes.promise_to(vm) for vm in pool.taken if vm.uuid in group.name)
    return any(promise.ways and promise.control_group == group.name for promise in promises)


@pytest.fixture
def witness(_session_witness: Witness, registers: L3Registers, pool: VmPool) -> Iterator[Witness]:
    """Looks at the registers before each write: no exclusive VM's ways may be anybody else's, at no moment."""
    _session_witness.steps.clear()
    _session_witness.written.clear()
    _session_witness.failures.clear()

    def look(step: Step) -> None:
        broken = groups.broken_now(ROOT, registers, partial(is_promised, pool))
        assert not broken, f"before the write to {step.path}: {[str(found) for found in broken]}"

    _session_witness.look = look
    yield _session_witness
    _session_witness.look = _session_witness.after = None
    assert not _session_witness.failures


@pytest.fixture
def resctrl(witness: Witness, request: pytest.FixtureRequest) -> Iterator[KernelResctrl]:
    """The kernel's resctrl, freshly mounted, with the mount options of an indirect parameter."""
    mounted = KernelResctrl(witness, options=getattr(request, "param", ()))
    mounted.start()
    yield mounted
    mounted.stop()


@pytest.fixture
def libvirt_host(_session_libvirt: PrivateLibvirt) -> Iterator[PrivateLibvirt]:
    """The private libvirtd, running; a test may stop, kill and restart it."""
    yield _session_libvirt
    if _session_libvirt.pid is None:
        _session_libvirt.start()


@pytest.fixture
def pool(_pool: VmPool, libvirt_host: PrivateLibvirt) -> Iterator[VmPool]:
    """Where the test's VMs come from."""
    yield _pool
    if libvirt_host.pid is None:
        libvirt_host.start()
    _pool.give_back()


@pytest.fixture
def virt_type(request: pytest.FixtureRequest) -> str:
    """KVM where the guest's CPU has it; of an indirect parameter ``emulated``, software emulation."""
    return "kvm" if KVM.exists() and getattr(request, "param", "") != "emulated" else "qemu"


@pytest.fixture
def make_vm(pool: VmPool, virt_type: str) -> MakeVm:
    """See :class:`tests.functional.conftest.MakeVm`."""

    def make(extra_specs: Mapping[str, str] | None = NOTHING_ASKED, **fields: Any) -> RunningVm:
        return pool.take(extra_specs, **{"virt_type": virt_type, **fields})

    return make


@pytest.fixture
def wait_for_vm(agent: Agent, wait_for: WaitFor, resctrl: KernelResctrl, registers: L3Registers) -> WaitForVm:
    """See :func:`tests.functional.agent.conftest.wait_for_vm`; what is kept is kept in the kernel's eyes, too."""

    def wait(vm: RunningVm, state: str, **expected: Any) -> dict[str, Any]:
        told = wait_until_told(agent, wait_for, vm, state, **expected)
        if state in KEPT:
            wait_for_kernel_threads(vm, wait_for)
            assert not list(eyes.faults(resctrl.root, registers, vm))
        return told

    return wait


def wait_for_kernel_threads(vm: RunningVm, wait_for: WaitFor) -> None:
    """One that KVM makes while the agent looks at a VM that is being started is left to the next audit."""
    wait_for(lambda: not eyes.faults_of_kernel_threads(vm), f"KVM's threads for {vm.name} being found")


@pytest.fixture(autouse=True)
def last_word(
    pool: VmPool,
    resctrl: KernelResctrl,
    registers: L3Registers,
    make_agent: MakeAgent,
    made_agents: list[Agent],
    libvirt_host: PrivateLibvirt,
    wait_for: WaitFor,
) -> Iterator[None]:
    """At a test's end the kernel and pqos are asked about every VM of which a running agent says that all is well."""
    yield
    if not os.path.ismount(resctrl.root):
        return
    if libvirt_host.pid is None:
        libvirt_host.start()
    for vm in _kept(made_agents, pool):
        wait_for_kernel_threads(vm, wait_for)
    # A promise is kept a pass or two before the VM is counted.
    wait_for(lambda: not _unfinished(made_agents), "every VM's monitoring group being made and filled")
    # Between two passes of the agent: pqos takes a while, and locks what it is shown in place of the root.
    with Filesystem(str(resctrl.root)).lock(exclusive=False, timeout=None):
        for vm in _kept(made_agents, pool):
            assert not list(eyes.faults(resctrl.root, registers, vm))
        names = groups.names(resctrl.root)
        before = {name: _tasks(resctrl.root / name) for name in names}
        # With the default group alone pqos has nothing to show.
        shown = pqos.show(resctrl.root, names) if names else {}
        has_l3 = (resctrl.root / "info/L3").exists() or SPLIT.exists()
        for name in shown:
            written = registers.masks(groups.closid(resctrl.root, name)) if has_l3 else {}
            assert shown[name].masks == written, f"pqos on {name or '/'}"
            if name:
                after = _tasks(resctrl.root / name)
                # A thread may have begun or ended meanwhile.
                assert before[name] & after <= shown[name].tasks <= before[name] | after, f"pqos on {name}"


def _kept(agents: list[Agent], pool: VmPool) -> Iterator[RunningVm]:
    """The test's VMs of which a running agent says that all is well."""
    for running in agents:
        if running.pid is None:
            continue
        told = {vm["uuid"]: vm["state"] for vm in running.get("/v1/vms")["vms"]}
        # The test may have ended it a moment ago.
        yield from (vm for vm in pool.taken if told.get(vm.uuid) in KEPT and vm.tasks())


def _unfinished(agents: list[Agent]) -> list[str]:
    """The VMs of which a running agent says that they are yet to be counted."""
    told = [uncounted(running).items() for running in agents if running.pid is not None]
    return [uuid for vms in told for uuid, reason in vms if reason in UNFINISHED]


def _tasks(group: Path) -> frozenset[int]:
    return frozenset(map(int, (group / "tasks").read_text().split()))


__all__ = ["_session_libvirt", "agent", "made_agents", "make_agent", "tree", "wait_for"]
