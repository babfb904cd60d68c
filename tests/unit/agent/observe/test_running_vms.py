# SPDX-License-Identifier: Apache-2.0
"""What is known of VMs while libvirt is away or looks fail; looks that hang are among the tests of the loop."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from vmqos.agent.observe import running_vms as module
from vmqos.agent.observe.running_vms import RunningVms
from vmqos.hypervisor import exceptions, processes
from vmqos.hypervisor.model import Process, VirtualMachine


class Libvirt:
    """Stands in for the connection: lists one VM, whose process is the test's."""

    def __init__(self, pid: int) -> None:
        self.vm = VirtualMachine("a", "a", 1, processes.of_pid(pid), None, False, None, "")
        self.listed = {"a": 1}
        self.reached = True
        self.described = 0
        self.on_describe: Callable[[], None] = lambda: None
        self.on_list: Callable[[], object] = lambda: None

    def list_running(self) -> dict[str, int]:
        self.on_list()
        if not self.reached:
            raise exceptions.HypervisorError
        return self.listed

    def describe(self, uuid: str) -> VirtualMachine | None:
        self.described += 1
        self.on_describe()
        return self.vm if self.reached and processes.still(self.vm.process) else None


@pytest.fixture
def qemu() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "infinity"]) as process:
        yield process
        process.kill()


def test_a_vm_that_ends_while_libvirt_is_away_is_gone_until_libvirt_lists_it_anew(
    qemu: subprocess.Popen[bytes],
) -> None:
    libvirt = Libvirt(qemu.pid)
    inventory = RunningVms(libvirt)  # type: ignore[arg-type]
    inventory.refresh(everything=True)
    assert inventory.vms.keys() == {"a"} and not inventory.gone
    libvirt.reached = False
    qemu.kill()
    qemu.wait()
    for _ in range(2):
        inventory.refresh(everything=True)
        assert not inventory.vms and inventory.gone == {"a"}
    libvirt.reached = True
    inventory.refresh(everything=True)
    assert not inventory.gone, "libvirt says that it runs, and it can't be looked at"


@pytest.fixture
def libvirt(qemu: subprocess.Popen[bytes]) -> Libvirt:
    return Libvirt(qemu.pid)


@pytest.fixture
def inventory(libvirt: Libvirt) -> Iterator[RunningVms]:
    made = RunningVms(libvirt)  # type: ignore[arg-type]
    yield made
    made.close()


def test_a_vm_is_looked_at_when_it_is_new_or_marked_and_otherwise_left_alone(
    inventory: RunningVms, libvirt: Libvirt
) -> None:
    for _ in range(3):
        inventory.refresh(everything=False)
    assert libvirt.described == 1 and inventory.due is None and inventory.looked_at is not None
    inventory.mark("a")
    for _ in range(3):
        inventory.refresh(everything=False)
    assert libvirt.described == 2


@pytest.mark.parametrize("everything", [False, True])
def test_a_look_that_libvirt_refused_is_still_owed(inventory: RunningVms, libvirt: Libvirt, everything: bool) -> None:
    inventory.refresh(everything=False)
    first = inventory.vms["a"]
    if not everything:
        inventory.mark("a")
    libvirt.reached = False
    inventory.refresh(everything)
    libvirt.reached = True
    inventory.refresh(everything=False)
    assert inventory.vms["a"] is not first and libvirt.described == 2
    inventory.refresh(everything=False)
    assert libvirt.described == 2


def test_a_mark_that_comes_during_the_look_is_still_owed(inventory: RunningVms, libvirt: Libvirt) -> None:
    inventory.mark("a")
    libvirt.on_describe = lambda: inventory.mark("a") if libvirt.described == 1 else None
    inventory.refresh(everything=False)
    assert inventory.troubles == {"a": module.WAITING} and inventory.due is not None
    assert inventory.due <= time.monotonic()
    inventory.refresh(everything=False)
    assert libvirt.described == 2 and not inventory.troubles
    inventory.refresh(everything=False)
    assert libvirt.described == 2


def test_a_look_that_fails_is_tried_again_after_a_pause_or_at_an_event(
    inventory: RunningVms, libvirt: Libvirt, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise exceptions.ProcessUnreadable(pid=1, error="EACCES")

    caplog.set_level("INFO")
    inventory.refresh(everything=False)
    known, looked_at = inventory.vms["a"], inventory.looked_at
    libvirt.on_describe = fail
    inventory.mark("a")
    for _ in range(5):
        inventory.refresh(everything=False)
    assert libvirt.described == 2 and len(caplog.messages) == 1
    assert inventory.vms["a"] is known and "can't be read" in inventory.troubles["a"]
    assert inventory.due is not None and 0 < inventory.due - time.monotonic() <= module.RETRY_DELAYS[0]
    assert inventory.looked_at == looked_at, "not all VMs could be looked at"
    inventory.mark("a")
    inventory.refresh(everything=False)
    assert libvirt.described == 3
    inventory.refresh(everything=True)
    assert libvirt.described == 4
    assert len(caplog.messages) == 1, "it is logged once"
    libvirt.on_describe = lambda: None
    inventory.mark("a")
    inventory.refresh(everything=False)
    assert inventory.vms["a"] is not known and not inventory.troubles and inventory.due is None


def test_a_vm_that_was_restarted_is_looked_at_anew(inventory: RunningVms, libvirt: Libvirt) -> None:
    inventory.refresh(everything=False)
    libvirt.listed = {"a": 2}
    inventory.refresh(everything=False)
    assert inventory.due is not None, "libvirt described an earlier run than it lists"
    libvirt.vm = replace(libvirt.vm, libvirt_id=2)
    inventory.refresh(everything=False)
    assert inventory.vms["a"].vm.libvirt_id == 2 and inventory.due is None


def test_a_vm_whose_process_is_not_there_yet_is_told_and_looked_at_again(
    inventory: RunningVms, libvirt: Libvirt
) -> None:
    vm, libvirt.vm = libvirt.vm, replace(libvirt.vm, process=Process(99999999, 1))
    inventory.refresh(everything=False)
    assert inventory.troubles == {"a": module.STARTING.text} and not inventory.vms
    libvirt.vm = vm
    inventory.mark("a")
    inventory.refresh(everything=False)
    assert inventory.vms.keys() == {"a"} and not inventory.troubles


def test_a_marked_vm_is_looked_at_while_libvirt_does_not_list(libvirt: Libvirt) -> None:
    late, answers = threading.Event(), threading.Event()
    inventory = RunningVms(libvirt, late.set)  # type: ignore[arg-type]
    try:
        inventory.refresh(everything=True)
        libvirt.on_list = lambda: answers.wait(10)
        inventory.mark("a")
        inventory.refresh(everything=False)
        assert libvirt.described == 2 and not answers.is_set()
        # A VM that libvirt has not listed yet is found, too.
        libvirt.vm = replace(libvirt.vm, uuid="b")
        inventory.mark("b")
        inventory.refresh(everything=False)
        assert inventory.vms.keys() == {"a", "b"}
        answers.set()
        assert late.wait(10), "the loop is woken for the list"
        inventory.refresh(everything=False)
        assert inventory.dying == {"b"}, "the list is from before that"
        libvirt.listed = {"a": 1, "b": 1}
        inventory.refresh(everything=False)
        assert inventory.vms.keys() == {"a", "b"} and not inventory.dying
    finally:
        answers.set()
        inventory.close()


def test_a_new_vm_that_was_marked_after_libvirt_was_asked_is_looked_for_again(libvirt: Libvirt) -> None:
    inventory = RunningVms(libvirt)  # type: ignore[arg-type]
    try:
        libvirt.on_list = lambda: inventory.mark("b")
        inventory.refresh(everything=True)
        assert inventory.due is not None and inventory.due <= time.monotonic()
        libvirt.on_list = lambda: None
        inventory.refresh(everything=False)
        assert inventory.due is None, "libvirt has no such VM"
    finally:
        inventory.close()


def test_a_look_that_was_left_behind_is_taken_over_although_libvirts_list_is_still_late(
    libvirt: Libvirt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_DEADLINE", 0.02)
    inventory = RunningVms(libvirt)  # type: ignore[arg-type]
    inventory.refresh(everything=True)
    before, slow, answers = inventory.vms["a"], threading.Event(), threading.Event()
    libvirt.on_list, libvirt.on_describe = answers.wait, slow.wait
    try:
        inventory.mark("a")
        inventory.refresh(everything=False)
        assert inventory.vms["a"] is before, "the look has not ended yet"
        refresh = threading.Thread(target=inventory.refresh, args=(False,))
        refresh.start()
        time.sleep(0.2)
        slow.set()
        refresh.join(2.0)
        assert not refresh.is_alive()
        assert inventory.vms["a"] is not before
    finally:
        slow.set()
        answers.set()
        inventory.close()
