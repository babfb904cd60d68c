# SPDX-License-Identifier: Apache-2.0
"""What a domain XML says of a VM."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.hypervisor import domain_xml, exceptions

UUID = "38c43823-3651-469c-b344-166d1c87d77b"


def domain(body: str = "", attributes: str = "type='kvm' id='4'", identity: str | None = None) -> str:
    identity = f"<name>instance-00000005</name><uuid>{UUID}</uuid>" if identity is None else identity
    return f"<domain {attributes}>{identity}{body}</domain>"


def test_a_running_vm_is_described() -> None:
    described = domain_xml.parse(domain("<vcpu placement='static'>4</vcpu><memory unit='KiB'>65536</memory>"))
    assert described == domain_xml.DomainDescription(
        uuid=UUID,
        name="instance-00000005",
        libvirt_id=4,
        has_cachetune=False,
        metadata=None,
    )


def test_a_vm_that_does_not_run_has_no_number() -> None:
    assert domain_xml.parse(domain(attributes="type='kvm'")).libvirt_id is None


def test_the_uuid_is_in_lower_case() -> None:
    assert domain_xml.parse(domain(identity=f"<name>a</name><uuid>{UUID.upper()}</uuid>")).uuid == UUID


@pytest.mark.parametrize(
    ("cputune", "placed"),
    [
        ("", False),
        ("<vcpupin vcpu='0' cpuset='0'/>", False),
        ("<cachetune vcpus='0-1'><cache id='0' level='3' type='both' size='3' unit='MiB'/></cachetune>", True),
        ("<cachetune vcpus='0'><monitor level='3' vcpus='0'/></cachetune>", True),
        ("<memorytune vcpus='0-1'><node id='0' bandwidth='20'/></memorytune>", True),
    ],
)
def test_a_vm_that_libvirt_placed_is_told(cputune: str, placed: bool) -> None:
    assert domain_xml.parse(domain(f"<cputune>{cputune}</cputune>")).has_cachetune is placed


@pytest.mark.parametrize(
    "xml",
    [
        "",
        "no XML",
        "<domain",
        "<network><name>n</name><uuid>u</uuid></network>",
        domain(identity="<name>a</name>"),
        domain(identity=f"<uuid>{UUID}</uuid>"),
        domain(identity=f"<name/><uuid>{UUID}</uuid>"),
        domain(attributes="id='x'"),
    ],
)
def test_what_libvirt_would_not_write_is_an_error(xml: str) -> None:
    with pytest.raises(exceptions.UnreadableDescription, match="the domain XML can't be read"):
        domain_xml.parse(xml)


@given(st.text())
def test_any_text_is_a_description_or_that_error(text: str) -> None:
    with contextlib.suppress(exceptions.UnreadableDescription):
        domain_xml.parse(text)


@pytest.mark.parametrize(
    ("labels", "uid"),
    [
        ("", None),
        ("<seclabel type='dynamic' model='dac' relabel='yes'><label>+64055:+108</label></seclabel>", 64055),
        ("<seclabel type='dynamic' model='apparmor'><label>libvirt-1</label></seclabel>", None),
        ("<seclabel type='none' model='dac'/>", None),
        ("<seclabel model='dac'><label>root:root</label></seclabel>", None),
        (
            "<seclabel model='dac'><label>+1:+1</label></seclabel>"
            "<seclabel model='dac'><label>+2:+2</label></seclabel>",
            None,
        ),
    ],
)
def test_the_user_is_that_of_the_dac_label(labels: str, uid: int | None) -> None:
    assert domain_xml.parse(domain(labels)).uid == uid


@pytest.mark.parametrize("number", ["9" * 5000, "\u0661", "1_0", " 4", "4 "])
def test_a_number_that_libvirt_does_not_write_is_none(number: str) -> None:
    with pytest.raises(exceptions.UnreadableDescription):
        domain_xml.parse(domain(attributes=f"id='{number}'"))
