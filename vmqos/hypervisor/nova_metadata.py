# SPDX-License-Identifier: Apache-2.0
"""What Nova tells about a VM in its domain XML (``nova.virt.libvirt.config.LibvirtConfigGuestMetaNovaInstance``).

Every client of libvirt that may define domains can write there, so nothing is taken for granted: what can be read is
used, and the rest is said to be wrong.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from xml.etree import ElementTree

from vmqos.hypervisor.model import NovaMetadata

_INSTANCE = re.compile(r"\{(http://openstack\.org/xmlns/libvirt/nova/1\.[0-9]+)\}instance")
"""Version 1.0 of the namespace came with Nova 2014.2, 1.1 with 2020.1 or so; both have all that is read here."""

LONGEST = 255
"""Characters of a name, a key or a value: no column of Nova's database takes more (``nova.db.main.models``)."""

_MOST_PROBLEMS = 10
"""Problems that are told of one VM."""


def read(metadata: ElementTree.Element | None) -> tuple[NovaMetadata | None, str]:
    """Read a domain's ``<metadata>``.

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
        elif max(len(key), len(child.text or "")) > LONGEST:
            problems.append(f"the extra spec {_shown(key)} is longer than {LONGEST} characters")
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
    if len(text) > LONGEST:
        problems.append(f"the name of the {what} is longer than {LONGEST} characters")
    return text[:LONGEST]


def _shown(text: str | None) -> str:
    shown = (text or "").strip()
    return repr(shown if len(shown) <= 60 else f"{shown[:60]}...")
