# SPDX-License-Identifier: Apache-2.0
"""The start of a VM under KVM: the kernel says in which group each thread of a vCPU is, from its birth on."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, SHARED_3, group
from tests.functional.conftest import MakeVm, WaitFor
from tests.kernel.agent import eyes, groups
from tests.kernel.agent.witness import Step, Witness
from tests.kernel.inside import msr
from tools.lab import processes, vms
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.resctrl import Resctrl
from tools.lab.vms import RunningVm

pytestmark = pytest.mark.guest(machines=("milan-kvm",), kernels=("6.12",))


STARTS = 24
"""How many starts there are at most until enough were in time. The guest is emulated, and some thirty times
slower than hardware: on a quiet machine 24 of 24 were in time. Beside other guests 7 of 24 were, for QEMU and the agent
want the same CPUs. How many are in time where the CPUs are real is told by tests/functional/agent/test_starts.py."""
IN_TIME = 2
"""Starts in time after which all is seen of them."""


class Born:
    """Looks where the vCPUs' threads of a VM are before each write to resctrl, from before it is started.

    The agent, which writes, waits while the witness looks. So QEMU waits, too: until a write that moves tasks is made.
    """

    def __init__(self, name: str, witness: Witness, host: PrivateLibvirt) -> None:
        self.seen: list[set[tuple[str, str]]] = []
        self._vm = RunningVm("", name, host)
        self._witness, self._before = witness, len(witness.made)
        self._check = witness.look
        witness.look, witness.after = self._look, self._go_on

    def _look(self, step: Step) -> None:
        self._signal(signal.SIGSTOP)
        try:
            if self._check is not None:
                self._check(step)
            vcpus = [tid for tid, comm in self._vm.tasks().items() if comm.startswith("CPU ")]
            self.seen.append(eyes.groups_of(vcpus))
        finally:
            if not step.path.endswith("tasks"):
                self._go_on(step)

    def _go_on(self, step: Step) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(self._vm.pid, number)

    def is_in_time(self, control: str) -> bool:
        """Whether QEMU's first thread was moved before a vCPU had its thread.

        It counts when the write was made, not when the agent began it.
        """
        moved = next(when for path, when in self._witness.made[self._before :] if path == f"{control}/tasks")
        vcpus = [tid for tid, comm in self._vm.tasks().items() if comm.startswith("CPU ")]
        # The kernel tells a thread's start in ticks that have passed: it may have been later, but not before.
        return all((processes.start_time(tid) or 0) / os.sysconf("SC_CLK_TCK") > moved for tid in vcpus)

    def controls(self) -> set[str]:
        """The control groups that a thread of a vCPU was ever seen in."""
        return {control for groups in self.seen for control, _ in groups}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "specs",
    [pytest.param(EXCLUSIVE_2, id="exclusive"), pytest.param(SHARED_3, marks=pytest.mark.long, id="shared")],
)
def test_every_vcpu_is_born_in_the_group(
    agent: Agent,
    make_vm: MakeVm,
    wait_for_vm: WaitForVm,
    witness: Witness,
    libvirt_host: PrivateLibvirt,
    specs: dict[str, str],
) -> None:
    wait_for_vm(make_vm({}), "none")
    check, in_time = witness.look, 0
    for number in range(STARTS):
        witness.look = check
        born = Born(f"born-{len(specs)}-{number}", witness, libvirt_host)
        vm = make_vm(specs, name=f"born-{len(specs)}-{number}", vcpus=2)
        told = wait_for_vm(vm, "kept")
        home = (group(vm), "") if specs == EXCLUSIVE_2 else ("vmqos.shared-ways3", group(vm))
        assert eyes.groups_of(tid for tid, comm in vm.tasks().items() if comm.startswith("CPU ")) == {home}
        if born.is_in_time(home[0]):
            in_time += 1
            # The kernel takes a task to its control group and to its monitoring group by two writes.
            assert born.controls() <= {home[0]}, "no vCPU ever ran with other ways"
            assert told["outside_later"] < 0.1
        vm.domain.destroy()
        if in_time == IN_TIME:
            print(f"of {number + 1} starts {in_time} were in time")
            return
    pytest.fail(f"of {STARTS} starts {in_time} were in time")


@pytest.fixture
def marking_rom(tmp_path: Path) -> Path:
    """Firmware of a VM whose first instructions leave a mark with the machine's plugin; then it does nothing."""
    # mov ecx, MARK; mov al, 1; wrmsr; jmp $ in 16-bit code, where an x86 CPU begins.
    code = b"\x66\xb9" + msr.MARK.to_bytes(4, "little") + b"\xb0\x01" + b"\x0f\x30" + b"\xeb\xfe"
    rom = tmp_path / "marking.rom"
    rom.write_bytes(bytes(0x10000 - 16) + code.ljust(16, b"\xf4"))
    return rom


@pytest.mark.timeout(600)
@pytest.mark.parametrize("specs", [EXCLUSIVE_2, SHARED_3], ids=["exclusive", "shared"])
def test_the_guests_first_instruction_runs_with_the_vms_ways(
    agent: Agent,
    resctrl: Resctrl,
    make_vm: MakeVm,
    wait_for_vm: WaitForVm,
    wait_for: WaitFor,
    witness: Witness,
    libvirt_host: PrivateLibvirt,
    virt_type: str,
    marking_rom: Path,
    specs: dict[str, str],
) -> None:
    """The register says so, as it was when the emulated CPU began with the VM's code."""
    wait_for_vm(make_vm({}), "none")
    cpus, check = sorted(os.sched_getaffinity(0)), witness.look
    flavor = vms.Flavor("marking", specs)

    def at_mark() -> list[int]:
        return [number for cpu in cpus if (number := msr.class_at_mark(cpu)) is not None]

    for number in range(STARTS):
        for cpu in cpus:
            msr.forget_mark(cpu)
        witness.look, name = check, f"first-{len(specs)}-{number}"
        born = Born(name, witness, libvirt_host)
        # The VMs of other tests are started paused.
        vm = vms.run(libvirt_host, vms.Vm(name, flavor, virt_type=virt_type, rom=marking_rom))
        wait_for_vm(vm, "kept")
        control = group(vm) if specs == EXCLUSIVE_2 else "vmqos.shared-ways3"
        wait_for(lambda: bool(at_mark()), "the guest's first instruction")
        if in_time := born.is_in_time(control):
            assert at_mark() == [groups.closid(resctrl.root, control)]
        vm.domain.destroy()
        if in_time:
            print(f"start {number + 1} was in time")
            return
    pytest.fail(f"of {STARTS} starts none was in time")
