# SPDX-License-Identifier: Apache-2.0
"""What is known of VMs while libvirt is away; the rest of the inventory is among the functional tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from vmqos.agent.inventory import Inventory
from vmqos.hypervisor import exceptions, processes
from vmqos.hypervisor.model import VirtualMachine


class Libvirt:
    """Stands in for the connection: lists one VM, whose process is the test's."""

    def __init__(self, pid: int) -> None:
        self.vm = VirtualMachine("a", "a", 1, processes.of_pid(pid), None, False, None, "")
        self.listed = {"a": 1}
        self.reached = True

    def list_running(self) -> dict[str, int]:
        if not self.reached:
            raise exceptions.HypervisorError
        return self.listed

    def describe(self, uuid: str) -> VirtualMachine | None:
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
    inventory = Inventory(libvirt)  # type: ignore[arg-type]
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
