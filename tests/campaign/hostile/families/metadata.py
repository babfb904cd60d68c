# SPDX-License-Identifier: Apache-2.0
"""What a user of the cloud may have in a VM's metadata: flavors, extra specs, and XML that Nova never wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from xml.sax.saxutils import escape, quoteattr

import libvirt

from tests.campaign.hostile.inputs import Attacker, Family, Hold, Input, Refused
from tests.campaign.hostile.stage import Stage
from tools.lab import vms
from tools.lab.vms import NOVA_NAMESPACE

ROLES = ("cloud-1", "cloud-2", "cloud-3", "cloud-4", "cloud-5")

WAYS = "hw:cache_ways"

VALUES: dict[str, Mapping[str, str]] = {
    "ways of 1e9": {WAYS: "1000000000"},
    "ways written 1e9": {WAYS: "1e9"},
    "negative ways": {WAYS: "-1"},
    "ways of 5 000 digits": {WAYS: "9" * 5000},
    "ways of another script's digits": {WAYS: "\u0663"},
    "ways of full-width digits": {WAYS: "\uff12"},
    "ways of a superscript": {WAYS: "\u00b2"},
    "ways with a sign and blanks": {WAYS: " +2 "},
    "ways with an underscore": {WAYS: "1_0"},
    "ways in hexadecimal": {WAYS: "0x2"},
    "ways of half a way": {WAYS: "0.5"},
    "ways that are no number": {WAYS: "nan"},
    "infinite ways": {WAYS: "inf"},
    "ways of control characters": {WAYS: "2\t\n"},
    "ways of a right-to-left mark": {WAYS: "\u202e2"},
    "ways of 1 MiB": {WAYS: "2" + " " * (1 << 20)},
    "a policy of HTML": {WAYS: "1", "hw:cache_policy": "<script>alert(1)</script>"},
    "a policy of 100 000 characters": {WAYS: "1", "hw:cache_policy": "x" * 100_000},
    "code without data": {"hw:cache_code_ways": "1"},
    "code, data and ways together": {WAYS: "1", "hw:cache_code_ways": "1", "hw:cache_data_ways": "1"},
    "ways of the L2 of 1e9": {"hw:l2_cache_ways": "1000000000"},
    "bandwidth of -1 per cent": {"hw:mem_bandwidth_percent": "-1"},
    "bandwidth of 1e30 per cent": {"hw:mem_bandwidth_percent": "1" + "0" * 30},
    "bandwidth of 2^64 MB/s": {"hw:mem_bandwidth_mbps": str(1 << 64)},
    "vCPUs without end": {WAYS: "1", "hw:cache_vcpus": "0-999999999"},
    "vCPUs of 100 000 ranges": {WAYS: "1", "hw:cache_vcpus": ",".join(map(str, range(0, 200_000, 2)))},
    "negative vCPUs": {WAYS: "1", "hw:cache_vcpus": "-5--1"},
    "vCPUs of carets": {WAYS: "1", "hw:cache_vcpus": "^0,^1,^^^"},
    "5 000 extra specs": {f"x:{number}": "1" for number in range(5000)},
    "1 000 extra specs of the cache that do not exist": {f"hw:cache_{number}": "1" for number in range(1000)},
    "a key of 100 000 characters": {"hw:cache_" + "x" * 100_000: "1"},
    "a key of escape sequences as libvirt lets them pass": {"hw:cache_\u009b2J": "1"},
    "a key that is another's prefix": {"hw:cache_ways ": "2", "hw:Cache_Ways": "3", "hw:cache_ways\u200b": "4"},
    "no key": {"": "2"},
}
"""Extra specs as the flavor's."""


def instance(inner: str, namespace: str = NOVA_NAMESPACE) -> str:
    """Nova's element with something in it.

    libvirt itself gives it Nova's prefix, and refuses an element that has it already.
    """
    return f'<n:instance xmlns:n="{namespace}">{inner}</n:instance>'


def specs(text: str) -> str:
    """Nova's element with a flavor that has these extra specs."""
    return instance(f'<n:flavor name="hostile"><n:extraSpecs>{text}</n:extraSpecs></n:flavor>')


def spec(key: str, value: str) -> str:
    """An extra spec."""
    return f"<n:extraSpec name={quoteattr(key)}>{escape(value)}</n:extraSpec>"


def deep(levels: int) -> str:
    """Elements within elements."""
    return "<n:a>" * levels + "</n:a>" * levels


ENTITIES = "".join(
    f'<!ENTITY e{number} "{f"&e{number - 1};" * 10}">' if number else '<!ENTITY e0 "aaaaaaaaaa">'
    for number in range(10)
)

ELEMENTS: dict[str, str] = {
    "a key that is there twice": specs(spec(WAYS, "1") + spec(WAYS, "2")),
    "a key that is there 5 000 times": specs("".join(spec(WAYS, str(number)) for number in range(5000))),
    "an extra spec of elements": specs(f"<n:extraSpec name={quoteattr(WAYS)}><n:b>2</n:b></n:extraSpec>"),
    "an extra spec without a name": specs("<n:extraSpec>2</n:extraSpec>"),
    "an extra spec with a comment in its value": specs(
        f"<n:extraSpec name={quoteattr(WAYS)}>1<!-- 0 -->0</n:extraSpec>"
    ),
    "an extra spec with CDATA": specs(f"<n:extraSpec name={quoteattr(WAYS)}><![CDATA[1]]></n:extraSpec>"),
    "an extra spec with a processing instruction": specs(f"<n:extraSpec name={quoteattr(WAYS)}>1<?x y?></n:extraSpec>"),
    "an extra spec of another namespace": specs(f'<x:extraSpec xmlns:x="urn:x" name={quoteattr(WAYS)}>1</x:extraSpec>'),
    "an attribute of another namespace": specs(
        f'<n:extraSpec xmlns:x="urn:x" x:name={quoteattr(WAYS)}>1</n:extraSpec>'
    ),
    "elements 200 deep": instance(deep(200)),
    "elements 5 000 deep": instance(deep(5000)),
    "extra specs 240 deep": specs(deep(240)),
    "two flavors": instance('<n:flavor name="a"/><n:flavor name="b"/>'),
    "no flavor": instance(""),
    "a flavor of 1 MiB": instance(f'<n:flavor name="{"f" * (1 << 20)}"/>'),
    "20 000 attributes": instance(f"<n:flavor {' '.join(f'a{number}=' + repr('1') for number in range(20_000))}/>"),
    "text in every place": instance("x<n:flavor>y<n:extraSpecs>z</n:extraSpecs>w</n:flavor>v"),
    "a namespace of the future": instance('<n:flavor name="x"/>', "http://openstack.org/xmlns/libvirt/nova/9.9"),
    "a namespace of 60 000 characters": instance("", "http://openstack.org/" + "x" * 60_000),
    "a namespace in another script": instance("", "http://openstack.org/xmlns/libvirt/nova/1.\u0661"),
    "entities within entities": f"<!DOCTYPE x [{ENTITIES}]>" + specs("<n:extraSpec name='x'>&e9;</n:extraSpec>"),
    "an entity of a file": '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]>' + instance("<n:name>&f;</n:name>"),
    "references to control characters": specs("<n:extraSpec name='x'>&#27;[2J&#13;&#0;</n:extraSpec>"),
    "references to a carriage return": specs(f"<n:extraSpec name={quoteattr(WAYS)}>1&#13;&#10;</n:extraSpec>"),
    "references to characters that are none": specs("<n:extraSpec name='x'>&#xD800;&#xFFFF;</n:extraSpec>"),
    "an element that does not end": "<n:instance xmlns:n='x'>",
    "no XML": "\x1b[2J",
}
"""Nova's element as it is given to ``virDomainSetMetadata``."""


def set_element(stage: Stage, role: str, element: str) -> None:
    """Put an element into a running VM's metadata.

    :raises Refused: if libvirt refuses it.
    """
    vm = stage.cloud_vm(role)
    kind, live = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_LIVE
    try:
        vm.domain.setMetadata(kind, element, "nova", NOVA_NAMESPACE, live)
    except (libvirt.libvirtError, ValueError, UnicodeError) as error:
        raise Refused(f"libvirt: {str(error).strip()[:120]}") from error


def _set(stage: Stage, role: str, element: str) -> Hold:
    set_element(stage, role, element)
    try:
        yield
    finally:
        set_element(stage, role, instance('<n:flavor name="plain"/>'))


def _defined(stage: Stage, metadata: str) -> Hold:
    """A VM is defined and started with it."""
    vm = vms.Vm(stage.new_name(), vms.Flavor("hostile"), metadata=f"<metadata>{metadata}</metadata>")
    try:
        try:
            vms.start(stage.host.connection(), vm)
        except libvirt.libvirtError as error:
            raise Refused(f"libvirt: {str(error).strip()[:120]}") from error
        yield
    finally:
        vms.remove(stage.host.connection(), vm.uuid)


def _changes(stage: Stage, times: int) -> Hold:
    """The metadata change again and again."""
    for number in range(times):
        set_element(stage, ROLES[0], specs(spec(WAYS, str(number % 2 + 1))))
    yield
    set_element(stage, ROLES[0], instance('<n:flavor name="plain"/>'))


AT_START: dict[str, str] = {
    "two of Nova's elements": instance('<n:flavor name="a"/>') + instance('<n:flavor name="b"/>'),
    "5 MiB of another's metadata": f'<x:x xmlns:x="urn:x">{"y" * (5 << 20)}</x:x>',
    "5 000 other elements": "".join(f'<x:x{number} xmlns:x="urn:{number}"/>' for number in range(5000)),
    "elements 250 deep beside Nova's": f'<x:x xmlns:x="urn:x">{"<x:a>" * 250}{"</x:a>" * 250}</x:x>' + specs(""),
    "5 000 extra specs of the cache": specs("".join(spec(f"hw:cache_{number}", "1") for number in range(5000))),
    "a value of 3 MiB": specs(spec(WAYS, "1" * (3 << 20))),
}
"""Metadata that a VM is started with."""


def _inputs() -> Iterator[Input]:
    elements = {name: specs("".join(spec(*each) for each in pairs.items())) for name, pairs in VALUES.items()}
    for number, (name, element) in enumerate((elements | ELEMENTS).items()):
        turn, role = divmod(number, len(ROLES))
        act = partial(_set, role=ROLES[role], element=element)
        yield Input(name, Attacker.CLOUD_USER, act, f"metadata {turn + 1}")
    for number, (name, metadata) in enumerate(AT_START.items()):
        act = partial(_defined, metadata=metadata)
        batch = f"started {number // 3 + 1}"
        yield Input(f"a VM started with {name}", Attacker.CLOUD_USER, act, batch)
    yield Input("metadata that change 100 times", Attacker.CLOUD_USER, partial(_changes, times=100))


FAMILY = Family("metadata", "domain XML: metadata, flavors and extra specs", tuple(_inputs()))
