# SPDX-License-Identifier: Apache-2.0
"""What a domain XML says of a VM."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree

from vmqos.hypervisor import exceptions, nova_metadata
from vmqos.hypervisor.model import NovaMetadata


@dataclass(frozen=True, slots=True)
class DomainDescription:
    """A VM as its domain XML describes it (https://libvirt.org/formatdomain.html).

    :ivar uuid: its UUID, in lower case.
    :ivar name: its libvirt name.
    :ivar libvirt_id: libvirt's number for this run; ``None`` where it does not run.
    :ivar has_cachetune: whether ``<cputune>`` has a ``<cachetune>`` or ``<memorytune>``.
    :ivar metadata: what Nova says; ``None`` for a VM that Nova did not make.
    :ivar metadata_error: what is wrong with the metadata, empty where nothing is.
    """

    uuid: str
    name: str
    libvirt_id: int | None
    has_cachetune: bool
    metadata: NovaMetadata | None
    metadata_error: str = ""


def parse(xml: str) -> DomainDescription:
    """Read a domain XML as libvirt writes it.

    libvirt serialises what it holds anew, without a DTD, so entities can't be defined and expat is safe on it. The
    metadata are whoever's who defined the domain; what is wrong there is said in ``metadata_error``.

    :raises vmqos.hypervisor.exceptions.UnreadableDescription: if it is no domain XML of libvirt's.
    """
    try:
        domain = ElementTree.fromstring(xml)
    except (ElementTree.ParseError, ValueError) as error:
        raise exceptions.UnreadableDescription(error=error) from error
    if domain.tag != "domain":
        raise exceptions.UnreadableDescription(error=f"it is a <{domain.tag}>")
    metadata, metadata_error = nova_metadata.read(domain.find("metadata"))
    return DomainDescription(
        uuid=_required(domain, "uuid").lower(),
        name=_required(domain, "name"),
        libvirt_id=_number(domain.get("id")),
        has_cachetune=any(domain.find(f"cputune/{name}") is not None for name in ("cachetune", "memorytune")),
        metadata=metadata,
        metadata_error=metadata_error,
    )


def _required(domain: ElementTree.Element, name: str) -> str:
    text = domain.findtext(name)
    if not text:
        raise exceptions.UnreadableDescription(error=f"it has no <{name}>")
    return text


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise exceptions.UnreadableDescription(error=error) from error
