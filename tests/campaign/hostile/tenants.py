# SPDX-License-Identifier: Apache-2.0
"""VMs whose QEMU is taken over: libvirt starts :mod:`.tenant_program` as their emulator, which obeys the campaign."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.campaign.hostile import tenant_program
from tests.campaign.hostile.inputs import Refused
from tools.lab import processes, vms
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.vms import RunningVm
from tools.lab.workspace import Workspace

EMULATOR = """\
#!/bin/sh
# libvirt asks it what it can do, as any emulator: the real one answers. A VM is the tenant's.
case " $* " in
*" -uuid "*) exec {python} {program} "$@" ;;
*) exec {real} "$@" ;;
esac
"""

ORDER_TIMEOUT = 90.0


class Tenant:
    """A VM under a tenant's control.

    :ivar vm: the VM, seen from outside.
    """

    def __init__(self, vm: RunningVm, socket_path: Path) -> None:
        self.vm = vm
        self._path = socket_path
        self.pid = vm.pid

    @property
    def group(self) -> str:
        """The control group that is the VM's."""
        return f"vmqos.{self.vm.uuid}"

    def order(self, what: str, **details: Any) -> dict[str, Any]:
        """Have the process in QEMU's place do something (``do_WHAT`` of :class:`tenant_program.Tenant`).

        :raises Refused: if the kernel refuses it.
        """
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ORDER_TIMEOUT)
            connection.connect(str(self._path))
            connection.sendall(json.dumps({"do": what, **details}).encode() + b"\n")
            with connection.makefile() as answers:
                line = answers.readline()
        if not line:
            raise RuntimeError(f"the tenant of {self.vm.name} ended while it was told to {what} {details}")
        told: dict[str, Any] = json.loads(line)
        if "refused" in told:
            raise Refused(f"the kernel: {told['refused']}")
        return told

    @contextlib.contextmanager
    def doing(self, what: str, **details: Any) -> Iterator[dict[str, Any]]:
        """Have it do something for the duration of the block."""
        try:
            yield self.order(what, **details)
        finally:
            self.order("restore")


class Tenants:
    """Starts such VMs, and keeps them for the inputs that come."""

    def __init__(self, workspace: Workspace, host: PrivateLibvirt) -> None:
        self._host = host
        self._folder = workspace.path / "tenant"
        self._folder.mkdir()
        self._numbers = itertools.count(1)
        real = shutil.which("qemu-system-x86_64")
        assert real is not None
        program = Path(shutil.copy(tenant_program.__file__, self._folder))
        (self._folder / "real-emulator").write_text(real)
        self._emulator = self._folder / "emulator"
        self._emulator.write_text(EMULATOR.format(python=sys.executable, program=program, real=real))
        self._emulator.chmod(0o755)
        self._kept: dict[str, Tenant] = {}

    def get(self, role: str = "first", extra_specs: Mapping[str, str] | None = None) -> Tenant:
        """The tenant's VM of this role, started when it is first asked for."""
        kept = self._kept.get(role)
        if kept is None or not os.path.exists(f"/proc/{kept.pid}"):
            kept = self.start({"hw:cache_ways": "1"} if extra_specs is None else extra_specs)
            self._kept[role] = kept
        return kept

    def start(self, extra_specs: Mapping[str, str]) -> Tenant:
        """Another such VM, which the caller removes."""
        vm = vms.Vm(f"tenant-{next(self._numbers)}", vms.Flavor("tenant", extra_specs))
        xml = vms.domain_xml(vm).replace("<devices>", f"<devices><emulator>{self._emulator}</emulator>")
        self._host.connection().defineXML(xml).create()
        path = self._folder / f"{vm.uuid}.sock"
        processes.wait_until(path.exists, f"the tenant's process of {vm.name}", 30.0)
        return Tenant(RunningVm(vm.uuid, vm.name, self._host), path)

    def remove(self, tenant: Tenant) -> None:
        """End a tenant's VM, also one whose monitor is dead."""
        self._kept = {role: kept for role, kept in self._kept.items() if kept is not tenant}
        vms.remove(self._host.connection(), tenant.vm.uuid)

    def forget(self) -> list[str]:
        """Keep none of them any longer; their UUIDs, for the caller to remove them."""
        kept, self._kept = self._kept, {}
        return [tenant.vm.uuid for tenant in kept.values()]
