# SPDX-License-Identifier: Apache-2.0
"""A VM that libvirt is starting: the simulator's machine in this process, a process as the VM's QEMU."""

from __future__ import annotations

import subprocess
import sys
import uuid as uuids
from collections.abc import Mapping
from dataclasses import replace

from tests.unit.agent.host import THREADS, Host
from vmqos.agent.early_start import EarlyStart
from vmqos.agent.observe.starting_vms import StartingVm
from vmqos.group_names import vm_group
from vmqos.hypervisor import processes
from vmqos.hypervisor.domain_xml import DomainDescription, Pinning
from vmqos.hypervisor.model import NovaMetadata, Process, VirtualMachine
from vmqos.hypervisor.run_files import DomainStatus

ANYWHERE = Pinning(("", ""), "")


class Start:
    """A VM on its way: its status as libvirt would write it, and a process that makes threads when it is told to."""

    def __init__(self, host: Host, specs: Mapping[str, str], pinning: Pinning = ANYWHERE, uuid: str = "") -> None:
        self.host = host
        self.uuid = uuid or str(uuids.uuid4())
        self.early = EarlyStart(host.resctrl, host.reconciler.starting)
        host.reconciler.is_wanted = lambda: self.early.is_at_work
        metadata = NovaMetadata("vm", "flavor", "", specs)
        domain = DomainDescription(self.uuid, f"instance-{self.uuid[:8]}", 77, False, metadata)
        self.status = DomainStatus(domain, pinning, 0, True, False)
        self.child: subprocess.Popen[bytes] | None = None
        self.arguments: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        return vm_group(self.uuid)

    def announce(self) -> set[str]:
        """libvirt writes the file before it forks QEMU."""
        return self.early.begin([self.told(None)])

    def fork(self) -> set[str]:
        """libvirt has forked QEMU, and writes its PID."""
        self.fork_unheard()
        return self.early.begin([self.told(self.process)])

    def fork_unheard(self) -> None:
        """libvirt has forked QEMU, and nobody has heard of it yet."""
        self.child = subprocess.Popen(
            [sys.executable, "-c", THREADS, "0", "0", *self.arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def told(self, process: Process | None) -> StartingVm:
        return StartingVm("instance", replace(self.status, pid=process.pid if process else 0), process)

    @property
    def process(self) -> Process:
        assert self.child is not None
        return processes.of_pid(self.child.pid)

    def make_threads(self, *names: str) -> set[int]:
        """QEMU makes its vCPUs' threads; the IDs of all its threads."""
        assert self.child is not None and self.child.stdin is not None and self.child.stdout is not None
        self.child.stdout.readline()
        for name in names:
            self.child.stdin.write(f"{name}\n".encode())
        self.child.stdin.flush()
        while len(found := processes.tasks(self.child.pid)) < 1 + len(names):
            pass
        return found

    def run(self) -> None:
        """libvirt lists the VM, and describes it."""
        domain = self.status.domain
        self.host.libvirt.vms[self.uuid] = VirtualMachine(
            self.uuid, domain.name, 77, self.process, None, False, domain.metadata
        )

    def end(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.communicate()


class MakeStart:
    def __init__(self, host: Host, made: list[Start]) -> None:
        self._host, self._made = host, made

    def __call__(self, specs: Mapping[str, str], pinning: Pinning = ANYWHERE, uuid: str = "") -> Start:
        self._made.append(Start(self._host, specs, pinning, uuid))
        return self._made[-1]
