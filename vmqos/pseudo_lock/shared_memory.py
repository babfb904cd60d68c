# SPDX-License-Identifier: Apache-2.0
"""Memory of the host that a VM sees as a PCI device: how a domain XML says so.

libvirt's ``<shmem model='ivshmem-plain'>`` is such a device, but always of a file below /dev/shm
(``qemuBuildShmemBackendMemProps``). So QEMU is given its arguments through libvirt's QEMU namespace.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.dom import minidom
from xml.parsers.expat import ExpatError

from vmqos.hypervisor import bounded_xml, domain_xml, exceptions

QEMU_NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"

_CPUS = re.compile(r"\^?([0-9]{1,18})(?:-([0-9]{1,18}))?")
"""A part of a ``cpuset``."""


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """A piece of the host's memory.

    :ivar name: tells it from others in the VM; letters, digits and ``. _ -``, the first one a letter.
    :ivar path: what QEMU opens and maps; without commas.
    :ivar size: bytes, a power of two: it is the PCI device's third base address register.
    """

    name: str
    path: str
    size: int

    @property
    def device(self) -> str:
        """The PCI device's id in QEMU."""
        return f"{self.name}-device"

    @property
    def arguments(self) -> tuple[str, ...]:
        """QEMU's arguments; the device finds a slot of its own.

        It is written as JSON, for QEMU makes these devices last (``qemu_create_cli_devices``): a slot that it found
        before might be one of those that libvirt gave to others.
        """
        backend = f"memory-backend-file,id={self.name},mem-path={self.path},size={self.size},share=on"
        device = {"driver": "ivshmem-plain", "id": self.device, "memdev": self.name}
        return "-object", backend, "-device", json.dumps(device, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Pins:
    """The host's CPUs that the threads of a VM may run on.

    :ivar emulator: those of QEMU's main thread, which maps memory.
    :ivar vcpus: those of each vCPU by its number.
    """

    emulator: frozenset[int]
    vcpus: Mapping[int, frozenset[int]]


def pins_within(xml: str, cpus: frozenset[int]) -> Pins:
    """What is left of a VM's pins within these CPUs; a set is empty where nothing is.

    :raises vmqos.hypervisor.exceptions.UnreadableDescription: if it is no domain XML of libvirt's.
    """
    domain = _parse(xml)
    vcpu = _child(domain, "vcpu")
    if vcpu is None:
        raise exceptions.UnreadableDescription(error="it has no <vcpu>")
    anywhere = vcpu.getAttribute("cpuset")
    tune = _child(domain, "cputune")
    own = (
        {}
        if tune is None
        else {pin.getAttribute("vcpu"): pin.getAttribute("cpuset") for pin in _children(tune, "vcpupin")}
    )
    emulator = None if tune is None else _child(tune, "emulatorpin")
    words = _text(vcpu) or "1"
    if not (words.isascii() and words.isdecimal() and len(words) <= 5):
        raise exceptions.UnreadableDescription(error=f"it has {words[:20]!r} vCPUs")
    count, usual = min(int(words), domain_xml.MOST_VCPUS), _within(anywhere, cpus)
    pinned = {number: own.get(str(number)) for number in range(count)}
    return Pins(
        emulator=_within(emulator.getAttribute("cpuset"), cpus) if emulator is not None else usual,
        vcpus={number: usual if text is None else _within(text, cpus) for number, text in pinned.items()},
    )


def with_memory(xml: str, memory: SharedMemory, pins: Pins) -> str:
    """The domain XML with the device, once, and with these pins.

    :raises vmqos.hypervisor.exceptions.UnreadableDescription: if it is no domain XML of libvirt's.
    """
    domain = _parse(without_memory(xml, memory.path) or xml)
    document = domain.ownerDocument
    assert document is not None
    tune = _child(domain, "cputune")
    if tune is None:
        tune = document.createElement("cputune")
        # libvirt takes the elements in any order (a RELAX NG interleave).
        domain.appendChild(tune)
    for name in ("vcpupin", "emulatorpin"):
        for pin in _children(tune, name):
            tune.removeChild(pin)
    for number, allowed in sorted(pins.vcpus.items()):
        _add(tune, "vcpupin", vcpu=str(number), cpuset=cpu_list(allowed))
    _add(tune, "emulatorpin", cpuset=cpu_list(pins.emulator))
    commandline = _commandline(domain)
    if commandline is None:
        if domain.getAttribute("xmlns:qemu") not in ("", QEMU_NAMESPACE):
            raise exceptions.UnreadableDescription(error="its prefix qemu is that of another namespace")
        domain.setAttribute("xmlns:qemu", QEMU_NAMESPACE)
        commandline = document.createElementNS(QEMU_NAMESPACE, "qemu:commandline")
        domain.appendChild(commandline)
    for argument in memory.arguments:
        element = document.createElementNS(QEMU_NAMESPACE, "qemu:arg")
        element.setAttribute("value", argument)
        commandline.appendChild(element)
    return domain.toxml()


def without_memory(xml: str, path: str) -> str | None:
    """The domain XML without the devices of that memory; ``None`` where it has none. Pins stay as they are.

    :raises vmqos.hypervisor.exceptions.UnreadableDescription: if it is no domain XML of libvirt's.
    """
    domain = _parse(xml)
    commandline = _commandline(domain)
    if commandline is None:
        return None
    arguments = [
        node for node in commandline.childNodes if isinstance(node, minidom.Element) and node.localName == "arg"
    ]
    names = set()
    for argument in arguments:
        given = _options(argument)
        if given.get("mem-path") == path:
            names.add(given.get("id", ""))
    drop = []
    for option, value in itertools.pairwise(arguments):
        given, word = _options(value), option.getAttribute("value")
        if (word == "-object" and given.get("id") in names) or (word == "-device" and given.get("memdev") in names):
            drop += [option, value]
    for element in drop:
        commandline.removeChild(element)
    return domain.toxml() if drop else None


def _options(argument: minidom.Element) -> dict[str, str]:
    """What an argument of QEMU's says by name, whether as JSON or as ``type,name=value``."""
    text = argument.getAttribute("value")
    if text.startswith("{"):
        try:
            return {name: str(value) for name, value in json.loads(text).items()}
        except (ValueError, RecursionError):
            return {}
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}


def has_memory(xml: str, path: str) -> bool:
    """Whether the domain XML has a device of that memory."""
    return without_memory(xml, path) is not None


def cpu_list(cpus: frozenset[int]) -> str:
    """CPUs as libvirt writes them, such as ``0-3,8``."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _within(text: str, cpus: frozenset[int]) -> frozenset[int]:
    """What a ``cpuset`` of libvirt's (``0-3,^2,8``) has of these CPUs; an empty one is every CPU."""
    if not text.strip():
        return cpus
    found = set[int]()
    for part in text.replace(" ", "").split(","):
        rule = _CPUS.fullmatch(part)
        if rule is None:
            raise exceptions.UnreadableDescription(error=f"a cpuset has {part[:40]!r}")
        named = range(int(rule[1]), int(rule[2] or rule[1]) + 1)
        members = {cpu for cpu in cpus if cpu in named}
        if part.startswith("^"):
            found.difference_update(members)
        else:
            found.update(members)
    return frozenset(found)


def _parse(xml: str) -> minidom.Element:
    """The root; what is not changed stays as libvirt wrote it, prefixes of namespaces too."""
    bounded_xml.parse(xml)
    try:
        root = minidom.parseString(xml).documentElement
    except (ExpatError, ValueError) as error:
        raise exceptions.UnreadableDescription(error=error) from error
    if root is None or root.tagName != "domain":
        raise exceptions.UnreadableDescription(error="it is no <domain>")
    return root


def _children(element: minidom.Element, name: str) -> list[minidom.Element]:
    return [node for node in element.childNodes if isinstance(node, minidom.Element) and node.tagName == name]


def _child(element: minidom.Element, name: str) -> minidom.Element | None:
    return next(iter(_children(element, name)), None)


def _commandline(domain: minidom.Element) -> minidom.Element | None:
    for node in domain.childNodes:
        if isinstance(node, minidom.Element) and (node.namespaceURI, node.localName) == (QEMU_NAMESPACE, "commandline"):
            return node
    return None


def _text(element: minidom.Element) -> str:
    return "".join(node.data for node in element.childNodes if isinstance(node, minidom.Text)).strip()


def _add(parent: minidom.Element, name: str, **attributes: str) -> None:
    assert parent.ownerDocument is not None
    element = parent.ownerDocument.createElement(name)
    for key, value in attributes.items():
        element.setAttribute(key, value)
    parent.appendChild(element)
