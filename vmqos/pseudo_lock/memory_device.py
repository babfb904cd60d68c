# SPDX-License-Identifier: Apache-2.0
"""Giving a VM a piece of the host's memory, now and at its next start, and taking it back.

Unlike :mod:`vmqos.hypervisor.connection` this changes VMs, at an operator's command alone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import libvirt

from vmqos.hypervisor import bounded_xml, exceptions
from vmqos.pseudo_lock import shared_memory
from vmqos.pseudo_lock.shared_memory import Pins, SharedMemory

_LONGEST_REASON = 1000
"""Characters of QEMU's reasons that are shown."""

TRIES = 5
"""How often a definition is read again that another program changes meanwhile."""

_INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM as an operator's command sees it.

    :ivar uuid: its UUID.
    :ivar name: its libvirt name.
    :ivar running: whether it runs, or is paused.
    :ivar persistent: whether it can be started again once it has ended.
    :ivar xml: its definition for the next start.
    :ivar live: its definition now; empty where it does not run.
    """

    uuid: str
    name: str
    running: bool
    persistent: bool
    xml: str
    live: str


@contextmanager
def connected(uri: str) -> Iterator[Any]:
    """A connection to libvirt that may change VMs, as long as the block runs.

    :raises vmqos.hypervisor.exceptions.NoHypervisor: if no libvirt runs here.
    :raises vmqos.hypervisor.exceptions.HypervisorUnreachable: if there is no connection for another reason.
    :raises vmqos.hypervisor.exceptions.HypervisorFailed: if libvirt refuses what is done in the block.
    """
    # Otherwise libvirt-python prints each error to standard error.
    libvirt.registerErrorHandler(lambda *_: None, None)
    try:
        connection = libvirt.open(uri)
    except libvirt.libvirtError as error:
        absent = error.get_error_code() == libvirt.VIR_ERR_SYSTEM_ERROR and error.get_int1() == errno.ENOENT
        unreachable = exceptions.NoHypervisor if absent else exceptions.HypervisorUnreachable
        raise unreachable(uri=uri, error=error) from error
    try:
        yield connection
    except libvirt.libvirtError as error:
        raise exceptions.HypervisorFailed(uri=uri, error=error) from error
    finally:
        with contextlib.suppress(libvirt.libvirtError):
            connection.close()


def look(connection: Any, uuid: str) -> Vm | None:
    """The VM of that UUID; ``None`` if libvirt has none."""
    try:
        domain = connection.lookupByUUIDString(uuid)
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_INVALID_ARG):
            return None
        raise
    return _vm(domain)


def having(connection: Any, path: str) -> list[Vm]:
    """The VMs that have that memory in their definition, or whose definition names it and can't be read as XML.

    A VM that ends meanwhile has none.
    """
    found = []
    for domain in connection.listAllDomains():
        try:
            vm = _vm(domain)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
            continue
        # What has not its path in it need not be XML that can be read.
        if path in vm.xml and _may_have(vm.xml, path):
            found.append(vm)
    return found


def give(connection: Any, vm: Vm, memory: SharedMemory, pins: Pins, now: Pins | None) -> None:
    """Give a VM the memory; if that fails, the VM is as it was.

    :param vm: the VM as it was read when the pins were chosen.
    :param pins: the CPUs to which the VM is confined from then on: the kernel lets no thread map a pseudo-locked region
        if that thread may run elsewhere (``pseudo_lock_dev_mmap``). QEMU's main thread maps it.
    :param now: those of the VM that runs, if it gets the memory at once, too.
    :raises vmqos.hypervisor.exceptions.DefinitionChanged: if its definition is another one by now; nothing was done.
    """
    domain = connection.lookupByUUIDString(vm.uuid)
    with ExitStack() as undo:
        if vm.persistent:
            changed = shared_memory.with_memory(vm.xml, memory, pins)
            if _definition(domain) != vm.xml:
                raise exceptions.DefinitionChanged(name=vm.name)
            connection.defineXML(changed)
            undo.callback(_take_back, connection, domain, memory.path, vm.xml, _definition(domain))
        if now is not None:
            _pin(domain, now, len(connection.getCPUMap()[1]), undo)
            _plug(domain, memory, free_root_port(vm.live))
        undo.pop_all()


def take(connection: Any, vm: Vm, path: str) -> None:
    """Take that memory out of a VM's definition; a VM that runs keeps it until it ends.

    libvirt has no call that changes a definition only if it is still the one that was read. So it is read again right
    before it is written, and what another program changed until then is kept.

    :raises vmqos.hypervisor.exceptions.DefinitionChanged: if another program goes on changing it.
    :raises vmqos.hypervisor.exceptions.HypervisorFailed: if libvirt refuses; the VM is as it was.
    :raises vmqos.hypervisor.exceptions.UnreadableDescription: if the definition can't be read.
    """
    try:
        domain = connection.lookupByUUIDString(vm.uuid)
        for _ in range(TRIES):
            before = _definition(domain)
            changed = shared_memory.without_memory(before, path)
            # A VM that is not persistent has no next start, and defining it would give it one.
            if changed is None or not domain.isPersistent():
                return
            if _definition(domain) == before:
                connection.defineXML(changed)
                return
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return
        raise exceptions.HypervisorFailed(uri=connection.getURI(), error=error) from error
    raise exceptions.DefinitionChanged(name=vm.name)


def _take_back(connection: Any, domain: Any, path: str, before: str, written: str) -> None:
    """Undo what :func:`give` wrote; where another program has changed it since, the memory alone is taken out."""
    if _definition(domain) == written:
        connection.defineXML(before)
    else:
        take(connection, _vm(domain), path)


def _definition(domain: Any) -> str:
    return str(domain.XMLDesc(_INACTIVE))


def _may_have(xml: str, path: str) -> bool:
    try:
        return shared_memory.has_memory(xml, path)
    except exceptions.UnreadableDescription:
        return True


def let_open(connection: Any, vm: Vm, path: str) -> None:
    """Make a device QEMU's, where libvirt does not run it as root.

    The owner is the one that libvirt gives the VM's other files: ``<seclabel model='dac'>`` of a running VM, else the
    base label for VMs of this kind in libvirt's capabilities.
    """
    owner = _dac_owner(vm.live) or _base_owner(connection.getCapabilities(), bounded_xml.parse(vm.xml).get("type", ""))
    if owner is not None:
        os.chown(path, *owner)


def free_root_port(xml: str) -> str | None:
    """The alias of a root port that has no device, for VMs whose first bus takes none while they run (q35).

    :returns: ``None`` where QEMU finds a slot by itself.
    :raises vmqos.hypervisor.exceptions.NoFreePort: if there is no free port.
    """
    domain = bounded_xml.parse(xml)
    models = {node.get("model"): node for node in domain.findall("devices/controller[@type='pci']")}
    if "pcie-root" not in models:
        return None
    used = {address.get("bus") for address in domain.iter("address") if address.get("type") == "pci"}
    for port in domain.findall("devices/controller[@type='pci'][@model='pcie-root-port']"):
        alias = port.find("alias")
        if f"0x{int(port.get('index', '0')):02x}" not in used and alias is not None:
            return alias.get("name")
    raise exceptions.NoFreePort()


def _vm(domain: Any) -> Vm:
    running = bool(domain.isActive())
    live = str(domain.XMLDesc(0)) if running else ""
    persistent = bool(domain.isPersistent())
    return Vm(domain.UUIDString(), domain.name(), running, persistent, _definition(domain), live)


def _pin(domain: Any, pins: Pins, cpus: int, undo: ExitStack) -> None:
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE
    before = domain.vcpuPinInfo(live)
    for number, allowed in pins.vcpus.items():
        if number < len(before):
            domain.pinVcpuFlags(number, _as_map(allowed, cpus), live)
            undo.callback(domain.pinVcpuFlags, number, before[number], live)
    emulator = domain.emulatorPinInfo(live)
    domain.pinEmulator(_as_map(pins.emulator, cpus), live)
    undo.callback(domain.pinEmulator, emulator, live)


def _as_map(cpus: frozenset[int], count: int) -> tuple[bool, ...]:
    return tuple(cpu in cpus for cpu in range(count))


def _plug(domain: Any, memory: SharedMemory, port: str | None) -> None:
    ask = _monitor(domain)
    backend = {"qom-type": "memory-backend-file", "id": memory.name, "mem-path": memory.path, "size": memory.size}
    ask("object-add", {**backend, "share": True})
    device = {"driver": "ivshmem-plain", "id": memory.device, "memdev": memory.name}
    try:
        ask("device_add", device if port is None else {**device, "bus": port})
    except BaseException:
        ask("object-del", {"id": memory.name})
        raise


def _monitor(domain: Any) -> Callable[[str, dict[str, Any]], None]:
    # A module of its own in libvirt-python; not every distribution's package has it.
    import libvirt_qemu

    def ask(command: str, arguments: dict[str, Any]) -> None:
        text = json.dumps({"execute": command, "arguments": arguments})
        error = _error_in(libvirt_qemu.qemuMonitorCommand(domain, text, 0))
        if error:
            raise exceptions.QemuRefused(command=command, error=error)

    return ask


def _error_in(answer: str) -> str:
    """Why QEMU refused; empty where it did not. The answer is QEMU's own, so it may be anything."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        return "its answer is no JSON"
    if not isinstance(found, dict):
        return "its answer is no JSON object"
    error = found.get("error", "")
    return str(error.get("desc", "it gives no reason") if isinstance(error, dict) else error)[:_LONGEST_REASON]


def _dac_owner(xml: str) -> tuple[int, int] | None:
    if not xml:
        return None
    for label in bounded_xml.parse(xml).findall("seclabel[@model='dac']"):
        return _numbers(label.findtext("label", ""))
    return None


def _base_owner(capabilities: str, kind: str) -> tuple[int, int] | None:
    for model in bounded_xml.parse(capabilities).findall("host/secmodel"):
        if model.findtext("model") == "dac":
            return _numbers(next((one.text or "" for one in model.findall("baselabel") if one.get("type") == kind), ""))
    return None


def _numbers(label: str) -> tuple[int, int] | None:
    """User and group of such as ``+64055:+108``."""
    found = re.fullmatch(r"\+([0-9]+):\+([0-9]+)", label.strip())
    return (int(found[1]), int(found[2])) if found else None
