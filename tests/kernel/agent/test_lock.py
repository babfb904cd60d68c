# SPDX-License-Identifier: Apache-2.0
"""The lock between applications, flock(2) on the root of the kernel's resctrl: the agent waits for it, and holds it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, EXCLUSIVE_4, SHARED_3, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeVm, WaitFor
from tests.kernel.agent import eyes, groups
from tests.kernel.agent.kernel_resctrl import KernelResctrl
from tests.kernel.agent.registers import L3Registers
from tools.lab import vms
from tools.lab.agent import Agent

pytestmark = [pytest.mark.guest(machines=("cascade-lake",), kernels=("6.12",)), pytest.mark.long]


@contextmanager
def lock(root: Path, operation: int) -> Iterator[None]:
    """Hold the lock in this process."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("operation", [fcntl.LOCK_EX, fcntl.LOCK_SH], ids=["to-write", "to-read"])
def test_the_agent_writes_nothing_while_another_holds_the_lock_and_then_goes_on(
    operation: int,
    agent: Agent,
    resctrl: KernelResctrl,
    make_vm: MakeVm,
    wait_for_vm: WaitForVm,
    wait_for: WaitFor,
) -> None:
    vm = make_vm()
    wait_for_vm(vm, "none")
    agent.configure({"resctrl": {"lock_timeout": 1.0}})
    agent.reload()
    wait_for(lambda: "configuration read again" in agent.log.read_text(), "the agent having read its configuration")
    with lock(resctrl.root, operation):
        changes = resctrl.changes()
        passes = agent.get("/v1/health")["passes"]
        vm.change_flavor(vms.Flavor("exclusive", EXCLUSIVE_2))
        wait_for(lambda: agent.get("/v1/health")["status"] == "failing", "the agent saying that it can't go on")
        said = agent.get("/v1/health")["resctrl"]["error"]
        assert "lock" in said and str(os.getpid()) in said, "it says for what it waits, and who has it"
        wait_for(lambda: agent.get("/v1/health")["passes"] > passes + 1, "the agent trying again")
        assert resctrl.changes() == changes
        assert eyes.group_of(vm.pid)[0] == ""
    wait_for_vm(vm, "kept")
    # The VM's state is told a moment before the pass, and its word on resctrl, is over.
    wait_for(lambda: agent.get("/v1/health")["resctrl"]["error"] is None, "the agent being well")
    assert len(resctrl.changes()) > len(changes)


def test_who_takes_the_lock_never_sees_a_group_half_made(
    resctrl: KernelResctrl,
    registers: L3Registers,
    tree: Tree,
    agent: Agent,
    make_vm: MakeVm,
    wait_for_vm: WaitForVm,
    wait_for: WaitFor,
) -> None:
    vm = make_vm()
    wait_for_vm(vm, "none")
    ended = threading.Event()
    faults: list[str] = []
    seen: list[tuple[str, ...]] = []

    def look() -> None:
        while not ended.is_set():
            with lock(resctrl.root, fcntl.LOCK_SH):
                found = groups.read(resctrl.root, registers)
                seen.append(tuple(each.name for each in found))
                for each in found:
                    if each.of_exclusive_vm:
                        ways = {mask.bit_count() for mask in each.masks.values()}
                        if not each.guarded or not each.caches or ways not in ({2}, {4}):
                            faults.append(f"{each} among {found}")
                faults.extend(map(str, groups.broken_promises(found, lambda each: True)))
            ended.wait(0.02)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        wait_for(lambda: ("",) in seen, "the other program having looked")
        for specs in (EXCLUSIVE_4, EXCLUSIVE_2, SHARED_3, EXCLUSIVE_4):
            looks = len(seen)
            vm.change_flavor(vms.Flavor("changed", specs))
            wait_for_vm(vm, "kept", ways_requested=int(specs["hw:cache_ways"]))
            home = "vmqos.shared-ways3" if specs is SHARED_3 else group(vm)
            wait_for(lambda home=home, looks=looks: ("", home) in seen[looks:], "it having looked again")  # type: ignore[misc]
        vm.change_flavor(vms.Flavor("nothing"))
        wait_for_vm(vm, "none", policy=None)
    finally:
        ended.set()
        reader.join()
    assert not faults


def test_libvirt_and_others_can_have_the_lock_between_two_passes(resctrl: KernelResctrl, agent: Agent) -> None:
    for _ in range(5):
        taken = subprocess.run(["flock", "--exclusive", "--timeout", "10", str(resctrl.root), "true"], check=False)
        assert taken.returncode == 0
