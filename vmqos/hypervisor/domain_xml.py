# SPDX-License-Identifier: Apache-2.0
"""What a domain XML says of a VM."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from vmqos.hypervisor import bounded_xml, exceptions, nova_metadata
from vmqos.hypervisor.model import NovaMetadata

MOST_VCPUS = 8192
"""vCPUs of a VM: KVM runs at most 4096 (``KVM_MAX_VCPUS`` in arch/x86/include/asm/kvm_host.h)."""


@dataclass(frozen=True, slots=True)
class DomainDescription:
    """A VM as its domain XML describes it (https://libvirt.org/formatdomain.html).

    :ivar uuid: its UUID, in lower case.
    :ivar name: its libvirt name.
    :ivar libvirt_id: libvirt's number for this run; ``None`` where it does not run.
    :ivar has_cachetune: whether ``<cputune>`` has a ``<cachetune>`` or ``<memorytune>``.
    :ivar metadata: what Nova says; ``None`` for a VM that Nova did not make.
    :ivar metadata_error: what is wrong with the metadata, empty where nothing is.
    :ivar uid: the user that libvirt runs its QEMU as; ``None`` where the XML does not say (an unprivileged libvirt's).
    """

    uuid: str
    name: str
    libvirt_id: int | None
    has_cachetune: bool
    metadata: NovaMetadata | None
    metadata_error: str = ""
    uid: int | None = None


_DAC_LABEL = re.compile(r"\+([0-9]{1,10}):\+[0-9]{1,10}")
"""``<seclabel type='dynamic' model='dac'><label>+64055:+108</label>``: user and group
(``virSecurityDACGenLabel``)."""


def parse(xml: str) -> DomainDescription:
    """Read a domain XML as libvirt writes it.

    The metadata are written by the user who defined the domain; what is wrong there is said in ``metadata_error``.

    :raises vmqos.hypervisor.exceptions.UnreadableDescription: if it is no domain XML of libvirt's.
    """
    return read(bounded_xml.parse(xml))


def read(domain: ElementTree.Element) -> DomainDescription:
    """Read a domain XML that is an element already, such as the one in a status file of libvirt's.

    :raises vmqos.hypervisor.exceptions.UnreadableDescription: if it is no domain XML of libvirt's.
    """
    if domain.tag != "domain":
        raise exceptions.UnreadableDescription(error=f"it is a <{domain.tag}>")
    metadata, metadata_error = nova_metadata.read(domain.find("metadata"))
    number = domain.get("id")
    if number is not None and not re.fullmatch(r"-?[0-9]{1,10}", number, re.ASCII):
        raise exceptions.UnreadableDescription(error=f"its id is {number[:20]!r}")
    labels = [_DAC_LABEL.fullmatch(label.findtext("label", "")) for label in domain.findall("seclabel[@model='dac']")]
    return DomainDescription(
        uuid=_required(domain, "uuid").lower(),
        name=_required(domain, "name"),
        libvirt_id=None if number is None else int(number),
        has_cachetune=any(domain.find(f"cputune/{name}") is not None for name in ("cachetune", "memorytune")),
        metadata=metadata,
        metadata_error=metadata_error,
        uid=int(labels[0][1]) if len(labels) == 1 and labels[0] else None,
    )


@dataclass(frozen=True, slots=True)
class Pinning:
    """The host's CPUs that a VM's threads are to run on: lists in the kernel's format, such as ``0-3,8``; empty: any.

    :ivar vcpus: those of each vCPU, by its number.
    :ivar others: those of QEMU's other threads.
    """

    vcpus: tuple[str, ...]
    others: str


def read_pinning(domain: ElementTree.Element) -> Pinning:
    """Where a domain XML wants the VM's threads to run: ``<vcpu cpuset>``, ``<vcpupin>`` and ``<emulatorpin>``."""
    vcpu, emulator = domain.find("vcpu"), domain.find("cputune/emulatorpin")
    usual, count = "", 1
    if vcpu is not None:
        usual, number = vcpu.get("cpuset", ""), (vcpu.get("current") or vcpu.text or "").strip()
        if re.fullmatch("[0-9]{1,6}", number, re.ASCII):
            count = min(MOST_VCPUS, int(number))
    pinned = {pin.get("vcpu"): pin.get("cpuset", "") for pin in domain.findall("cputune/vcpupin")}
    others = usual if emulator is None else emulator.get("cpuset", "")
    return Pinning(tuple(pinned.get(str(number), usual) for number in range(count)), others)


def _required(domain: ElementTree.Element, name: str) -> str:
    text = domain.findtext(name)
    if not text:
        raise exceptions.UnreadableDescription(error=f"it has no <{name}>")
    return text
