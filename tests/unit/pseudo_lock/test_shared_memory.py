# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.hypervisor import exceptions
from vmqos.pseudo_lock import shared_memory
from vmqos.pseudo_lock.shared_memory import Pins, SharedMemory

MEMORY = SharedMemory("vmqos.lock-table", "/dev/pseudo_lock/vmqos.lock-table", 262144)
OTHER = SharedMemory("vmqos.lock-other", "/dev/pseudo_lock/vmqos.lock-other", 4096)
PINS = Pins(frozenset({2, 3}), {0: frozenset({2}), 1: frozenset({2, 3})})
PLAIN = """<domain type='kvm'><name>web</name>
  <metadata><nova:instance xmlns:nova="urn:nova"><nova:name>w</nova:name></nova:instance></metadata>
  <vcpu placement='static' current='1'>2</vcpu><devices/></domain>"""
PINNED = """<domain type='kvm'><vcpu cpuset='0-3,^1'>3</vcpu><cputune><shares>7</shares><vcpupin vcpu='0' cpuset='3'/>
<emulatorpin cpuset='0-1'/></cputune></domain>"""


@pytest.mark.parametrize(
    ("xml", "cpus", "emulator", "vcpus"),
    [
        (PLAIN, {2, 3}, {2, 3}, {0: {2, 3}, 1: {2, 3}}),
        (PINNED, {2, 3}, set(), {0: {3}, 1: {2, 3}, 2: {2, 3}}),
        (PINNED, {0, 1}, {0, 1}, {0: set(), 1: {0}, 2: {0}}),
    ],
)
def test_pins_are_narrowed_and_never_widened(
    xml: str, cpus: set[int], emulator: set[int], vcpus: dict[int, set[int]]
) -> None:
    pins = shared_memory.pins_within(xml, frozenset(cpus))
    assert (set(pins.emulator), {number: set(allowed) for number, allowed in pins.vcpus.items()}) == (emulator, vcpus)


def test_a_definition_gets_the_device_and_the_pins_and_keeps_the_rest() -> None:
    xml = shared_memory.with_memory(PLAIN, MEMORY, PINS)
    assert 'xmlns:nova="urn:nova"' in xml and "<nova:name>w</nova:name>" in xml
    assert f'xmlns:qemu="{shared_memory.QEMU_NAMESPACE}"' in xml
    assert '<qemu:arg value="-object"/><qemu:arg value="memory-backend-file,id=vmqos.lock-table,' in xml
    assert "mem-path=/dev/pseudo_lock/vmqos.lock-table,size=262144,share=on" in xml
    device = '{"driver":"ivshmem-plain","id":"vmqos.lock-table-device","memdev":"vmqos.lock-table"}'
    assert f'<qemu:arg value="{device.replace(chr(34), "&quot;")}"/>' in xml
    assert '<vcpupin vcpu="0" cpuset="2"/><vcpupin vcpu="1" cpuset="2-3"/><emulatorpin cpuset="2-3"/>' in xml


def test_old_pins_go_and_other_tuning_stays() -> None:
    xml = shared_memory.with_memory(PINNED, MEMORY, PINS)
    assert xml.count("<emulatorpin") == 1 and xml.count("<vcpupin") == 2 and "<shares>7</shares>" in xml


def test_a_device_that_is_there_already_is_replaced() -> None:
    smaller = SharedMemory(MEMORY.name, MEMORY.path, 4096)
    xml = shared_memory.with_memory(shared_memory.with_memory(PLAIN, smaller, PINS), MEMORY, PINS)
    assert xml.count("<qemu:arg") == 4 and xml.count("<qemu:commandline") == 1 and "size=262144" in xml


def test_a_device_is_taken_out_and_others_stay() -> None:
    xml = shared_memory.with_memory(shared_memory.with_memory(PLAIN, OTHER, PINS), MEMORY, PINS)
    assert shared_memory.has_memory(xml, MEMORY.path)
    without = shared_memory.without_memory(xml, MEMORY.path)
    assert without is not None
    assert not shared_memory.has_memory(without, MEMORY.path) and shared_memory.has_memory(without, OTHER.path)
    assert without.count("<qemu:arg") == 4


ODD = PLAIN.replace(
    "<devices/>",
    f"""<devices/><commandline xmlns='{shared_memory.QEMU_NAMESPACE}'>
<arg value='-object'/><arg value='{{no json'/><arg value='-s'/></commandline>""",
)


@pytest.mark.parametrize("xml", [PLAIN, ODD, shared_memory.with_memory(PLAIN, OTHER, PINS)])
def test_where_there_is_no_such_device_nothing_is_taken_out(xml: str) -> None:
    assert shared_memory.without_memory(xml, MEMORY.path) is None


def pinned_to(cpus: str) -> str:
    return f"<domain type='kvm'><vcpu cpuset='{cpus}'>1</vcpu></domain>"


@pytest.mark.parametrize(
    "xml",
    [
        "",
        "<nix/>",
        "<domain><name>x</name></domain>",
        *map(pinned_to, ("1_0", "\u0661", "0-1_0", "+1", "-1", "1-", "x")),
    ],
)
def test_what_is_no_domain_xml_is_told(xml: str) -> None:
    with pytest.raises(exceptions.UnreadableDescription):
        shared_memory.pins_within(xml, frozenset({0}))


@pytest.mark.parametrize(("cpus", "text"), [({0, 1, 2, 8}, "0-2,8"), ({5}, "5"), (set(), "")])
def test_cpus_are_written_as_a_list(cpus: set[int], text: str) -> None:
    assert shared_memory.cpu_list(frozenset(cpus)) == text
