# SPDX-License-Identifier: Apache-2.0
"""A libvirt that answers late, refuses, or says what is no longer so; and the VMs that the agent knows by it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from vmqos.agent.observe import running_vms as module
from vmqos.agent.observe.running_vms import RunningVms
from vmqos.hypervisor import exceptions, processes
from vmqos.hypervisor.model import VirtualMachine

PATIENCE = 0.05
LONG = 60.0


class Libvirt:
    """Stands in for the connection: lists one VM, whose process is the test's.

    :ivar answers: the list comes only while this event is set.
    """

    def __init__(self, pid: int) -> None:
        self.vm = VirtualMachine("a", "a", 1, processes.of_pid(pid), None, False, None, "")
        self.vms: dict[str, VirtualMachine] = {}
        """Further VMs, by UUID."""
        self.listed = {"a": 1}
        self.reached = True
        self.asked = 0
        self.described = 0
        self.answers = threading.Event()
        self.answers.set()
        self.on_describe: Callable[[], None] = lambda: None
        self.on_list: Callable[[], object] = lambda: None

    def list_running(self) -> dict[str, int]:
        self.asked += 1
        assert self.answers.wait(LONG)
        self.on_list()
        if not self.reached:
            raise exceptions.HypervisorError
        return dict(self.listed)

    def describe(self, uuid: str) -> VirtualMachine | None:
        self.described += 1
        self.on_describe()
        vm = self.vms.get(uuid, self.vm)
        return vm if self.reached and processes.still(vm.process) else None


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bear a machine that has no CPU for a while: nothing hangs but what a test lets hang."""
    monkeypatch.setattr(module, "LIST_PATIENCE", 1.0)
    monkeypatch.setattr(module, "LOOK_DEADLINE", LONG)
    monkeypatch.setattr(module, "ROUND_BUDGET", LONG)
    monkeypatch.setattr(module, "RETRY_DELAYS", (LONG, LONG))


@pytest.fixture
def qemu() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "infinity"]) as process:
        yield process
        process.kill()


@pytest.fixture
def libvirt(qemu: subprocess.Popen[bytes]) -> Iterator[Libvirt]:
    made = Libvirt(qemu.pid)
    yield made
    made.answers.set()


@pytest.fixture
def late() -> threading.Event:
    """Set when the loop is told of a look that it no longer waits for."""
    return threading.Event()


@pytest.fixture
def running(libvirt: Libvirt, late: threading.Event) -> Iterator[RunningVms]:
    made = RunningVms(libvirt, late.set)  # type: ignore[arg-type]
    yield made
    libvirt.answers.set()
    made.close()


def have_a_list_come_late(
    running: RunningVms, libvirt: Libvirt, late: threading.Event, *, everything: bool = False
) -> None:
    """Have libvirt's list come once no look waits for it any more."""
    libvirt.answers.clear()
    running.look(everything, PATIENCE)
    libvirt.answers.set()
    assert late.wait(LONG)
