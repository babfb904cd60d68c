# SPDX-License-Identifier: Apache-2.0
"""VMs that outlive a test, because starting one under an emulated CPU takes seconds.

They are paused, unless a test has them go on. A test gets a VM with the flavor that it asks for, put into its metadata.
What it leaves unharmed is another test's; until then it is a VM that asks for nothing, as there are on any host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import libvirt

from tools.lab import vms
from tools.lab.private_libvirt import PrivateLibvirt

NOT_POOLED = frozenset({"name", "display_name", "metadata", "uuid", "flavor", "cputune", "numatune"})
"""What makes a VM unlike any other."""

NOTHING = vms.Flavor("nothing")
RUNS = (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_PAUSED)

_Shape = tuple[tuple[str, Any], ...]


@dataclass
class VmPool:
    """The VMs of one private libvirtd."""

    host: PrivateLibvirt
    _idle: list[tuple[_Shape, vms.RunningVm]] = field(default_factory=list)
    _taken: list[tuple[_Shape, vms.RunningVm]] = field(default_factory=list)
    _started: int = 0

    @property
    def taken(self) -> list[vms.RunningVm]:
        """The VMs that the test has asked for so far."""
        return [vm for _, vm in self._taken]

    @property
    def idle(self) -> list[vms.RunningVm]:
        """The VMs that no test has: they ask for nothing."""
        return [vm for _, vm in self._idle]

    def take(self, extra_specs: Mapping[str, str] | None, **fields: Any) -> vms.RunningVm:
        """A running VM with these extra specs and these fields of :class:`tools.lab.vms.Vm`."""
        shape = tuple(sorted(fields.items()))
        if extra_specs is None or NOT_POOLED & fields.keys():
            flavor = fields.pop("flavor", vms.Flavor("test", extra_specs))
            vm = self._start(vms.Vm(name=fields.pop("name", self._name()), flavor=flavor, **fields))
            self._taken.append((shape, vm))
            return vm
        found = next((entry for entry in self._idle if entry[0] == shape), None)
        flavor = vms.Flavor("test", extra_specs)
        if found is None:
            found = shape, self._start(vms.Vm(name=self._name(), flavor=flavor, **fields))
        else:
            self._idle.remove(found)
            found[1].change_flavor(flavor)
        self._taken.append(found)
        return found[1]

    def give_back(self) -> None:
        """Keep what the test left as it got it, and remove the rest."""
        connection = self.host.connection()
        for shape, vm in self._taken:
            if not NOT_POOLED & dict(shape).keys() and self._is_as_it_was(dict(shape), vm):
                vm.change_flavor(NOTHING)
                self._idle.append((shape, vm))
            else:
                vms.remove(connection, vm.uuid)
        self._taken.clear()
        known = {vm.uuid for _, vm in self._idle}
        for domain in connection.listAllDomains():
            if domain.UUIDString() not in known:
                vms.remove(connection, domain.UUIDString())

    def _is_as_it_was(self, shape: Mapping[str, Any], vm: vms.RunningVm) -> bool:
        try:
            domain = vm.domain
            return (
                # Of a QEMU that was killed libvirt may not know yet.
                bool(vm.tasks())
                and domain.state()[0] in RUNS
                and domain.name() == vm.name
                and domain.vcpusFlags(libvirt.VIR_DOMAIN_AFFECT_LIVE) == shape.get("vcpus", 1)
                and "<iothreads>1<" in domain.XMLDesc()
                and "<disk" not in domain.XMLDesc()
                and "pin " not in domain.XMLDesc()
                and "<vsock" not in domain.XMLDesc()
            )
        except libvirt.libvirtError:
            return False

    def _name(self) -> str:
        self._started += 1
        return f"instance-{self._started:08x}"

    def _start(self, vm: vms.Vm) -> vms.RunningVm:
        # Its threads are there all the same, and its firmware takes no time from the emulated CPU.
        vms.define(self.host.connection(), vm).createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
        return vms.RunningVm(vm.uuid, vm.name, self.host)
