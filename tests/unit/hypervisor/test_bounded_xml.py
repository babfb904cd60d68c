# SPDX-License-Identifier: Apache-2.0
"""XML of any size, depth or kind."""

from __future__ import annotations

import time

import pytest

from vmqos.hypervisor import bounded_xml, exceptions
from vmqos.pseudo_lock import shared_memory
from vmqos.pseudo_lock.shared_memory import Pins, SharedMemory

LAUGHS = "".join(f'<!ENTITY l{number} "{f"&l{number - 1};" * 10}">' for number in range(1, 10))

HOSTILE = {
    "a million elements deep": "<a>" * 1_000_000,
    "deeper than libvirt's own parser takes": "<a>" * 257 + "</a>" * 257,
    "a million elements": f"<a>{'<b/>' * 1_000_000}</a>",
    "longer than libvirt sends": f"<a>{'x' * (4 << 20)}</a>",
    "a billion laughs": f'<!DOCTYPE a [<!ENTITY l0 "lol">{LAUGHS}]><a>&l9;</a>',
    "a file of the host": '<!DOCTYPE a [<!ENTITY f SYSTEM "file:///etc/passwd">]><a>&f;</a>',
    "an empty document type": "<!DOCTYPE a><a/>",
    "an entity that is not defined": "<a>&f;</a>",
    "not closed": "<a>",
    "closed too often": "<a></a></a>",
    "nothing": "",
    "a zero byte": "<a>\0</a>",
    "a lone surrogate": "<a>\udcff</a>",
}


@pytest.mark.parametrize("xml", HOSTILE.values(), ids=HOSTILE)
def test_it_is_refused_in_time(xml: str) -> None:
    began = time.process_time()
    with pytest.raises(exceptions.UnreadableDescription):
        bounded_xml.parse(xml)
    with pytest.raises(exceptions.UnreadableDescription):
        shared_memory.pins_within(xml, frozenset({0}))
    assert time.process_time() - began < 2


def test_what_libvirt_may_write_is_read() -> None:
    deep = "<a>" * bounded_xml.DEEPEST + "</a>" * bounded_xml.DEEPEST
    wide = "<?xml version='1.0'?><a><!-- c --><?p i?>" + "<b c='d'/>" * 50_000 + "&lt;&#955;</a>"
    assert bounded_xml.parse(deep).tag == "a"
    assert len(bounded_xml.parse(wide)) == 50_000


def test_a_definition_as_deep_as_libvirt_takes_can_be_changed() -> None:
    metadata = "<m>" * (bounded_xml.DEEPEST - 2) + "</m>" * (bounded_xml.DEEPEST - 2)
    xml = f"<domain><vcpu>1</vcpu><metadata>{metadata}</metadata></domain>"
    pins = Pins(frozenset({0}), {0: frozenset({0})})
    changed = shared_memory.with_memory(xml, SharedMemory("m", "/dev/pseudo_lock/m", 4096), pins)
    assert shared_memory.has_memory(changed, "/dev/pseudo_lock/m")


@pytest.mark.parametrize(
    "body",
    [
        "<vcpu>99999999999999</vcpu>",
        "<vcpu>\u0661</vcpu>",
        "<vcpu cpuset='0-x'>1</vcpu>",
        "<vcpu cpuset='\u00b2'>1</vcpu>",
    ],
)
def test_numbers_that_libvirt_does_not_write_are_refused(body: str) -> None:
    with pytest.raises(exceptions.UnreadableDescription):
        shared_memory.pins_within(f"<domain>{body}</domain>", frozenset({0, 1}))


def test_a_set_of_very_many_cpus_takes_no_memory() -> None:
    xml = "<domain><vcpu cpuset='0-99999999999,^1'>1</vcpu></domain>"
    assert shared_memory.pins_within(xml, frozenset({0, 1, 2})).emulator == {0, 2}


@pytest.mark.parametrize("value", ["[" * 100_000, '["a"]', "{" + '"a":{' * 100_000, "{", '{"a": 1'])
def test_an_argument_that_is_no_json_object_names_no_memory(value: str) -> None:
    argument = value.replace("&", "&amp;").replace('"', "&quot;")
    xml = (
        f"<domain xmlns:qemu='{shared_memory.QEMU_NAMESPACE}'><qemu:commandline>"
        f'<qemu:arg value="-object"/><qemu:arg value="{argument}"/></qemu:commandline></domain>'
    )
    assert not shared_memory.has_memory(xml, "/dev/x")
