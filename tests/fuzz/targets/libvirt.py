# SPDX-License-Identifier: Apache-2.0
"""What libvirt says of VMs, and what Nova says within it."""

from __future__ import annotations

import contextlib
from xml.etree import ElementTree

from tests.fuzz.targets import parts
from vmqos import extra_specs
from vmqos.hypervisor import bounded_xml, domain_xml, exceptions, run_files
from vmqos.hypervisor.domain_xml import DomainDescription
from vmqos.pseudo_lock import shared_memory
from vmqos.pseudo_lock.shared_memory import SharedMemory
from vmqos.resctrl import topology

_MEMORY = SharedMemory("vmqos-a", "/dev/pseudo_lock/vmqos.lock-a", 1 << 20)

_DOMAIN = (
    "<domain><name>instance-00000005</name><uuid>38c43823-3651-469c-b344-166d1c87d77b</uuid>"
    "<metadata>{}</metadata></domain>"
)


def domain(data: bytes) -> bool:
    return _read(data.decode(errors="replace")) is not None


def metadata(data: bytes) -> bool:
    """The content of ``<metadata>`` alone: most of a domain XML is not from a user."""
    found = _read(_DOMAIN.format(data.decode(errors="replace")))
    return found is not None and found.metadata is not None


def memory(data: bytes) -> bool:
    """A domain XML that is written anew, with memory for the VM."""
    xml, cpus = data.decode(errors="replace"), frozenset(range(4))
    try:
        pins = shared_memory.pins_within(xml, cpus)
        changed = shared_memory.with_memory(xml, _MEMORY, pins)
    except exceptions.UnreadableDescription:
        return False
    assert shared_memory.has_memory(changed, _MEMORY.path)
    without = shared_memory.without_memory(changed, _MEMORY.path)
    assert without is not None and not shared_memory.has_memory(without, _MEMORY.path)
    # Where nothing is left of a pin, libvirt would read none.
    if pins.emulator and all(pins.vcpus.values()):
        assert shared_memory.pins_within(changed, cpus) == pins
    return True


def status(data: bytes) -> bool:
    path = parts.lay_down("status.xml", data)
    found = run_files.read_status(str(path))
    if found is None:
        return False
    _check(found.domain)
    assert found.pid >= 0 and len(found.pinning.vcpus) <= domain_xml.MOST_VCPUS
    for cpus in {*found.pinning.vcpus, found.pinning.others}:
        with contextlib.suppress(ValueError):
            topology.parse_cpu_list(cpus)
    return True


def _read(xml: str) -> DomainDescription | None:
    try:
        element = bounded_xml.parse(xml)
        described = domain_xml.read(element)
    except exceptions.UnreadableDescription:
        return None
    _check(described)
    assert len(domain_xml.read_pinning(element).vcpus) <= domain_xml.MOST_VCPUS
    # XML makes a line feed of a carriage return, so it is the second text that stays as it is.
    again = _rendered(bounded_xml.parse(_rendered(element)))
    assert domain_xml.parse(again) == domain_xml.parse(_rendered(bounded_xml.parse(again)))
    return described


def _rendered(element: ElementTree.Element) -> str:
    return ElementTree.tostring(element, encoding="unicode")


def _check(described: DomainDescription) -> None:
    """What is told of a VM is bounded, and its flavor can be judged."""
    assert described.uuid and described.name
    assert len(described.metadata_error) < 10_000
    found = described.metadata
    if found is None:
        return
    assert max(map(len, (found.instance_name, found.flavor, found.project))) <= domain_xml.LONGEST_OF_NOVA
    for key, value in (found.extra_specs or {}).items():
        assert 0 < len(key) <= domain_xml.LONGEST_OF_NOVA and len(value) <= domain_xml.LONGEST_OF_NOVA
    errors = extra_specs.parse(found.extra_specs or {}).errors
    assert len("; ".join(map(str, errors))) < 20_000
