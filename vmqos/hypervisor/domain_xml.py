# SPDX-License-Identifier: Apache-2.0
"""What a domain XML says of a VM, and what Nova tells of it there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from xml.etree import ElementTree

from vmqos.hypervisor import bounded_xml, exceptions
from vmqos.hypervisor.model import NovaMetadata

MOST_VCPUS = 8192
"""vCPUs of a VM: KVM runs at most 4096 (``KVM_MAX_VCPUS`` in arch/x86/include/asm/kvm_host.h)."""

_INSTANCE = re.compile(r"\{(http://openstack\.org/xmlns/libvirt/nova/1\.[0-9]+)\}instance")
"""Version 1.0 of the namespace came with Nova 2014.2, 1.1 with 2020.1 or so; both have all that is read here."""

LONGEST_OF_NOVA = 255
"""Characters of a name, a key or a value of Nova's: no column of its database takes more (``nova.db.main.models``)."""

_MOST_PROBLEMS = 10
"""Problems with Nova's metadata that are told of one VM."""


@dataclass(frozen=True, slots=True)
class DomainDescription:
    """A VM as its domain XML describes it (https://libvirt.org/formatdomain.html).

    :ivar uuid: its UUID, in lower case.
    :ivar name: its libvirt name.
    :ivar libvirt_id: libvirt's number for this run; ``None`` where it does not run.
    :ivar has_cachetune: whether ``<cputune>`` has a ``<cachetune>`` or ``<memorytune>``.
    :ivar metadata: what Nova says; ``None`` for a VM that Nova did not make.
    :ivar metadata_error: what is wrong with the metadata, empty where nothing is.
    :ivar vcpus: how many vCPUs it has; 0 where the XML does not say.
    :ivar uid: the user that libvirt runs its QEMU as; ``None`` where the XML does not say (an unprivileged libvirt's).
    """

    uuid: str
    name: str
    libvirt_id: int | None
    has_cachetune: bool
    metadata: NovaMetadata | None
    metadata_error: str = ""
    uid: int | None = None
    vcpus: int = 0


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
    metadata, metadata_error = read_nova(domain.find("metadata"))
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
        vcpus=_count_of_vcpus(domain.find("vcpu")),
    )


def _count_of_vcpus(vcpu: ElementTree.Element | None) -> int:
    """How many vCPUs are plugged in; 0 where that can't be read."""
    number = "" if vcpu is None else (vcpu.get("current") or vcpu.text or "").strip()
    return min(MOST_VCPUS, int(number)) if re.fullmatch("[0-9]{1,6}", number, re.ASCII) else 0


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
    usual, count = "" if vcpu is None else vcpu.get("cpuset", ""), _count_of_vcpus(vcpu) or 1
    pinned = {pin.get("vcpu"): pin.get("cpuset", "") for pin in domain.findall("cputune/vcpupin")}
    others = usual if emulator is None else emulator.get("cpuset", "")
    return Pinning(tuple(pinned.get(str(number), usual) for number in range(count)), others)


def _required(domain: ElementTree.Element, name: str) -> str:
    text = domain.findtext(name)
    if not text:
        raise exceptions.UnreadableDescription(error=f"it has no <{name}>")
    return text


def read_nova(metadata: ElementTree.Element | None) -> tuple[NovaMetadata | None, str]:
    """Read what Nova tells in a domain's ``<metadata>``.

    Nova's class for it is ``nova.virt.libvirt.config.LibvirtConfigGuestMetaNovaInstance``. But every client of libvirt
    that may define domains can write there, so nothing is taken for granted: what can be read is used, and the rest is
    said to be wrong.

    :returns: Nova's metadata, ``None`` where there are none or they are beyond use; and what is wrong with them, empty
        where nothing is.
    """
    children = () if metadata is None else metadata
    found = [(match[1], child) for child in children if (match := _INSTANCE.fullmatch(child.tag))]
    if not found:
        return None, ""
    if len(found) > 1:
        return None, f"Nova's metadata are there {len(found)} times"
    namespace, instance = found[0]
    problems: list[str] = []
    named = _only(instance, namespace, "name", problems)
    name = "" if named is None else _short("instance", (named.text or "").strip(), problems)
    flavor = _only(instance, namespace, "flavor", problems)
    flavor_name = "" if flavor is None else _short("flavor", flavor.get("name", "").strip(), problems)
    if flavor is None:
        problems.append("Nova's metadata name no flavor")
    elif not flavor_name:
        problems.append("the flavor has no name")
    owner = _only(instance, namespace, "owner", problems)
    project = _only(owner, namespace, "project", problems)
    extra_specs = _extra_specs(_only(flavor, namespace, "extraSpecs", problems), namespace, problems)
    nova = NovaMetadata(
        instance_name=name,
        flavor=flavor_name,
        project="" if project is None else _short("project", project.get("uuid", "").strip(), problems),
        extra_specs=None if extra_specs is None else MappingProxyType(extra_specs),
    )
    more = len(problems) - _MOST_PROBLEMS
    return nova, "; ".join(problems[:_MOST_PROBLEMS] + ([f"and {more} more"] if more > 0 else []))


def _extra_specs(element: ElementTree.Element | None, namespace: str, problems: list[str]) -> dict[str, str] | None:
    """The extra specs by key; those that can't be told for sure are left out and reported."""
    if element is None:
        return None
    found: dict[str, str] = {}
    ambiguous = set[str]()
    if (element.text or "").strip():
        problems.append(f"the extra specs hold the text {_shown(element.text)}")
    for child in element:
        key = child.get("name", "")
        if child.tag != f"{{{namespace}}}extraSpec":
            problems.append(f"the extra specs hold the element {_shown(child.tag)}")
        elif not key:
            problems.append(f"an extra spec of value {_shown(child.text)} has no name")
        elif max(len(key), len(child.text or "")) > LONGEST_OF_NOVA:
            problems.append(f"the extra spec {_shown(key)} is longer than {LONGEST_OF_NOVA} characters")
        elif len(child):
            problems.append(f"the extra spec {_shown(key)} holds elements, not a value")
        elif key in found and found[key] != (child.text or ""):
            ambiguous.add(key)
        else:
            found[key] = child.text or ""
    for key in sorted(ambiguous):
        problems.append(f"the extra spec {_shown(key)} is there with different values")
        del found[key]
    return found


def _only(
    parent: ElementTree.Element | None, namespace: str, name: str, problems: list[str]
) -> ElementTree.Element | None:
    """The child of this name, ``None`` where there is none; the first where there are several, which is a problem."""
    found = [] if parent is None else parent.findall(f"{{{namespace}}}{name}")
    if len(found) > 1:
        problems.append(f"the element {name} is there {len(found)} times")
    return found[0] if found else None


def _short(what: str, text: str, problems: list[str]) -> str:
    """The text; where it is too long its beginning, which is a problem."""
    if len(text) > LONGEST_OF_NOVA:
        problems.append(f"the name of the {what} is longer than {LONGEST_OF_NOVA} characters")
    return text[:LONGEST_OF_NOVA]


def _shown(text: str | None) -> str:
    shown = (text or "").strip()
    return repr(shown if len(shown) <= 60 else f"{shown[:60]}...")
