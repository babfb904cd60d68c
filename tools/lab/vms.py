# SPDX-License-Identifier: Apache-2.0
"""Small VMs whose domain XML carries the metadata as Nova 34 writes it."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid as uuids
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import libvirt

from tools.lab import processes
from tools.lab.private_libvirt import PrivateLibvirt

NOVA_NAMESPACE = "http://openstack.org/xmlns/libvirt/nova/1.1"
PROJECT = "6e33a463cfb740e48ced88dc1df76034"


@dataclass(frozen=True, slots=True)
class Flavor:
    """A Nova flavor.

    :ivar extra_specs: ``None`` leaves the element out, as Nova did before 2025.2 (32.0).
    """

    name: str
    extra_specs: Mapping[str, str] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Linux:
    """A Linux for a VM.

    :ivar kernel: the file of the kernel; ``initrd``: that of the initial RAM disk.
    :ivar command_line: of the kernel.
    """

    kernel: Path
    initrd: Path
    command_line: str


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM to define: no disk, no network, one I/O thread; its firmware finds nothing to boot and idles.

    A ROM in place of the firmware gives it something to do; ``fw_cfg`` tells the ROM what.

    :ivar name: the libvirt name, unique on the private libvirtd.
    :ivar display_name: the server's name in Nova; the libvirt name where empty.
    :ivar vcpus: vCPUs at the start.
    :ivar max_vcpus: what vCPU hot-plug can reach; ``vcpus`` where 0.
    :ivar cpuset: the host CPUs that the VM may run on, such as ``0`` or ``0-1``; all where empty.
    :ivar memory: MiB.
    :ivar virt_type: ``kvm`` or ``qemu``; see :func:`tools.lab.kvm.virt_type`.
    :ivar cputune: elements for ``<cputune>``, such as ``<cachetune>``.
    :ivar numatune: elements for ``<numatune>``, such as ``<memory>``.
    :ivar metadata: takes the place of Nova's ``<metadata>`` element, for bad-input tests; may be empty.
    :ivar rom: the file that takes the firmware's place; the firmware where ``None``.
    :ivar linux: what the firmware boots; nothing where ``None``.
    :ivar fw_cfg: files of QEMU's firmware configuration, by name (``opt/...``).
    :ivar console: where the first serial port is written to; there is none where ``None``.
    """

    name: str
    flavor: Flavor
    display_name: str = ""
    vcpus: int = 1
    max_vcpus: int = 0
    cpuset: str = ""
    memory: int = 32
    virt_type: str = "qemu"
    cputune: str = ""
    numatune: str = ""
    uuid: str = field(default_factory=lambda: str(uuids.uuid4()))
    metadata: str | None = None
    rom: Path | None = None
    linux: Linux | None = None
    fw_cfg: Mapping[str, str] = field(default_factory=dict)
    console: Path | None = None


def nova_metadata(vm: Vm) -> str:
    """The ``<metadata>`` element of Nova 34 (``nova.virt.libvirt.config.LibvirtConfigGuestMetaNovaInstance``)."""
    specs = ""
    if vm.flavor.extra_specs is not None:
        each = (
            f"\n          <nova:extraSpec name={quoteattr(key)}>{escape(value)}</nova:extraSpec>"
            for key, value in vm.flavor.extra_specs.items()
        )
        specs = f"\n        <nova:extraSpecs>{''.join(each)}\n        </nova:extraSpecs>"
    return f"""<metadata>
    <nova:instance xmlns:nova="{NOVA_NAMESPACE}">
      <nova:package version="34.0.0"/>
      <nova:name>{escape(vm.display_name or vm.name)}</nova:name>
      <nova:creationTime>2026-11-21 10:22:17</nova:creationTime>
      <nova:flavor name={quoteattr(vm.flavor.name)} id="{uuids.uuid5(uuids.NAMESPACE_OID, vm.flavor.name)}">
        <nova:memory>{vm.memory}</nova:memory>
        <nova:disk>1</nova:disk>
        <nova:swap>0</nova:swap>
        <nova:ephemeral>0</nova:ephemeral>
        <nova:vcpus>{vm.vcpus}</nova:vcpus>{specs}
      </nova:flavor>
      <nova:owner>
        <nova:user uuid="5c7df48002cf4f0b9ff379fab04675e8">admin</nova:user>
        <nova:project uuid="{PROJECT}">admin</nova:project>
      </nova:owner>
      <nova:ports/>
    </nova:instance>
  </metadata>"""


def domain_xml(vm: Vm) -> str:
    """The VM's definition for ``virDomainDefineXML``."""
    cpuset = f" cpuset={quoteattr(vm.cpuset)}" if vm.cpuset else ""
    rom = f'<loader readonly="yes" type="rom">{escape(str(vm.rom))}</loader>' if vm.rom else ""
    entries = "".join(f"<entry name={quoteattr(name)}>{escape(text)}</entry>" for name, text in vm.fw_cfg.items())
    linux = _linux(vm.linux) if vm.linux else ""
    fw_cfg = f'\n  <sysinfo type="fwcfg">{entries}</sysinfo>' if entries else ""
    path = quoteattr(str(vm.console))
    console = f'\n    <serial type="file"><source path={path}/><target port="0"/></serial>' if vm.console else ""
    return f"""<domain type="{vm.virt_type}">
  <name>{escape(vm.name)}</name>
  <uuid>{vm.uuid}</uuid>
  {nova_metadata(vm) if vm.metadata is None else vm.metadata}
  <memory unit="MiB">{vm.memory}</memory>
  <vcpu placement="static"{cpuset} current="{vm.vcpus}">{vm.max_vcpus or vm.vcpus}</vcpu>
  <iothreads>1</iothreads>
  <cputune>{vm.cputune}</cputune>
  <numatune>{vm.numatune}</numatune>
  <os><type arch="x86_64" machine="pc">hvm</type>{rom}{linux}</os>{fw_cfg}
  <features><acpi/><apic/></features>
  <on_poweroff>destroy</on_poweroff>
  <on_crash>destroy</on_crash>
  <devices>
    <controller type="usb" model="none"/>
    <memballoon model="none"/>{console}
  </devices>
</domain>"""


def _linux(linux: Linux) -> str:
    parts = {"kernel": linux.kernel, "initrd": linux.initrd, "cmdline": linux.command_line}
    return "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in parts.items())


def define(connection: libvirt.virConnect, vm: Vm) -> libvirt.virDomain:
    """Define the VM, or redefine it, as Nova does at a resize (what runs keeps its old definition)."""
    return connection.defineXML(domain_xml(vm))


def start(connection: libvirt.virConnect, vm: Vm) -> libvirt.virDomain:
    """Define the VM and start it.

    :raises libvirt.libvirtError: if QEMU does not start.
    """
    domain = define(connection, vm)
    domain.create()
    return domain


def run(host: PrivateLibvirt, vm: Vm) -> RunningVm:
    """Define the VM and start it on a private libvirtd.

    :raises libvirt.libvirtError: if QEMU does not start.
    """
    start(host.connection(), vm)
    return RunningVm(vm.uuid, vm.name, host)


def remove(connection: libvirt.virConnect, uuid: str) -> None:
    """Stop the VM if it runs, and undefine it; a VM that is gone is fine."""
    try:
        domain = connection.lookupByUUIDString(uuid)
    except libvirt.libvirtError:
        return
    for step in (domain.destroy, domain.undefine):
        try:
            step()
        except libvirt.libvirtError as error:
            if error.get_error_code() not in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN):
                raise


@dataclass(frozen=True, slots=True)
class RunningVm:
    """A VM that was started, seen from outside: by libvirt and /proc, not by the agent.

    :ivar host: the libvirtd that it runs on.
    """

    uuid: str
    name: str
    host: PrivateLibvirt

    @property
    def domain(self) -> libvirt.virDomain:
        """The VM in libvirt's hands, also after a restart of libvirtd."""
        return self.host.connection().lookupByUUIDString(self.uuid)

    @property
    def pid(self) -> int:
        """PID of the QEMU process, from libvirt's PID file.

        :raises FileNotFoundError: if the VM is not running, or libvirt has not written the file yet.
        """
        file = self.host.run_dir / f"{self.name}.pid"
        if not (text := file.read_text()).strip():
            raise FileNotFoundError(errno.ENOENT, "libvirt is writing it", str(file))
        return int(text)

    def change_flavor(self, flavor: Flavor) -> None:
        """Put another flavor into the metadata of the running VM."""
        text = nova_metadata(Vm(self.name, flavor, uuid=self.uuid))
        self.domain.setMetadata(
            libvirt.VIR_DOMAIN_METADATA_ELEMENT,
            ET.tostring(ET.fromstring(text)[0], encoding="unicode"),
            "nova",
            NOVA_NAMESPACE,
            libvirt.VIR_DOMAIN_AFFECT_LIVE,
        )

    def tasks(self) -> dict[int, str]:
        """The task ids of the QEMU process with their names; empty where it has ended."""
        try:
            pid = self.pid
            return _named(Path(f"/proc/{pid}/task/{tid}") for tid in os.listdir(f"/proc/{pid}/task"))
        except FileNotFoundError:
            return {}

    def kernel_threads(self) -> dict[int, str]:
        """The kernel's threads outside the process that work for the VM: KVM's for its timer chip."""
        named, wanted = _named(Path(f"/proc/{pid}") for pid in processes.all_pids()), f"kvm-pit/{self.pid}"
        return {pid: name for pid, name in named.items() if name == wanted}


def _named(paths: Iterable[Path]) -> dict[int, str]:
    found = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found[int(path.name)] = os.fsdecode((path / "comm").read_bytes()).rstrip("\n")
    return found
