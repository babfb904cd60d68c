# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tools.lab.vms import NOVA_NAMESPACE, Flavor, Linux, Vm, domain_xml

NOVA = f"{{{NOVA_NAMESPACE}}}"


@pytest.mark.parametrize("specs", [{}, {"hw:cache_ways": "2"}, {"hw:cache_ways": "<two>", 'a"b': "c&d"}])
def test_the_flavors_extra_specs_are_in_the_metadata_as_nova_writes_them(specs: dict[str, str]) -> None:
    root = ElementTree.fromstring(domain_xml(Vm("instance-00000001", Flavor("gold", specs))))
    found = root.findall(f"metadata/{NOVA}instance/{NOVA}flavor/{NOVA}extraSpecs/{NOVA}extraSpec")
    assert {each.get("name"): each.text for each in found} == specs


def test_an_older_nova_writes_no_extra_specs() -> None:
    root = ElementTree.fromstring(domain_xml(Vm("instance-00000001", Flavor("gold", None))))
    assert root.find(f"metadata/{NOVA}instance/{NOVA}flavor") is not None
    assert root.find(f".//{NOVA}extraSpecs") is None


def test_metadata_can_be_anything() -> None:
    assert "<metadata><x/></metadata>" in domain_xml(Vm("a", Flavor("b"), metadata="<metadata><x/></metadata>"))


def test_a_linux_is_what_the_firmware_boots() -> None:
    linux = Linux(Path("/lab/vmlinuz"), Path("/lab/a&b"), "console=ttyS0 quiet")
    root = ElementTree.fromstring(domain_xml(Vm("a", Flavor("b"), linux=linux)))
    found = {name: root.findtext(f"os/{name}") for name in ("kernel", "initrd", "cmdline", "loader")}
    assert found == {"kernel": "/lab/vmlinuz", "initrd": "/lab/a&b", "cmdline": "console=ttyS0 quiet", "loader": None}
    assert ElementTree.fromstring(domain_xml(Vm("a", Flavor("b")))).find("os/kernel") is None
