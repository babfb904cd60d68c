# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import libvirt
import pytest

from vmqos.hypervisor import exceptions
from vmqos.pseudo_lock import memory_device, shared_memory

Q35 = """<domain><devices>
<controller type='pci' index='0' model='pcie-root'><alias name='pcie.0'/></controller>
<controller type='pci' index='1' model='pcie-root-port'><alias name='pci.1'/>
  <address type='pci' domain='0x0000' bus='0x00' slot='0x01' function='0x0'/></controller>
<controller type='pci' index='2' model='pcie-root-port'><alias name='pci.2'/>
  <address type='pci' domain='0x0000' bus='0x00' slot='0x02' function='0x0'/></controller>
<interface><address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></interface>{more}
</devices></domain>"""
SECOND = "<disk><address type='pci' domain='0x0000' bus='0x02' slot='0x00' function='0x0'/></disk>"


CAPABILITIES = """<capabilities><host><secmodel><model>apparmor</model></secmodel>
<secmodel><model>dac</model>
<baselabel type='kvm'>+64055:+108</baselabel><baselabel type='qemu'>+1:+2</baselabel></secmodel>
</host></capabilities>"""


@dataclass
class Connection:
    """libvirt's word on who VMs run as."""

    capabilities: str

    def getCapabilities(self) -> str:
        return self.capabilities


@pytest.mark.parametrize(
    ("live", "capabilities", "owner"),
    [
        ("", CAPABILITIES, (64055, 108)),
        ("<domain><seclabel model='dac'><label>+7:+8</label></seclabel></domain>", CAPABILITIES, (7, 8)),
        ("<domain><seclabel model='selinux'><label>x</label></seclabel></domain>", CAPABILITIES, (64055, 108)),
        ("", "<capabilities><host/></capabilities>", None),
    ],
)
def test_the_device_is_given_to_whom_libvirt_runs_the_vm_as(
    monkeypatch: pytest.MonkeyPatch, live: str, capabilities: str, owner: tuple[int, int] | None
) -> None:
    changed: list[tuple[object, ...]] = []
    monkeypatch.setattr("os.chown", lambda *arguments: changed.append(arguments))
    vm = memory_device.Vm("uuid", "name", bool(live), True, "<domain type='kvm'/>", live)
    memory_device.let_open(Connection(capabilities), vm, "/dev/x")
    assert changed == ([("/dev/x", *owner)] if owner else [])


def test_a_running_q35_has_room_on_a_root_port_without_a_device() -> None:
    assert memory_device.free_root_port(Q35.format(more="")) == "pci.2"


def test_where_every_root_port_has_a_device_that_is_told() -> None:
    with pytest.raises(exceptions.NoFreePort, match="root port"):
        memory_device.free_root_port(Q35.format(more=SECOND))


def test_on_an_older_machine_qemu_finds_a_slot() -> None:
    xml = "<domain><devices><controller type='pci' index='0' model='pci-root'/></devices></domain>"
    assert memory_device.free_root_port(xml) is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"return": {}}', ""),
        ('{"error": {"class": "GenericError", "desc": "no such device"}}', "no such device"),
        ('{"error": {}}', "it gives no reason"),
        ('{"error": [1]}', "[1]"),
        ('{"error": {"desc": ["a"]}}', "['a']"),
        ("[]", "its answer is no JSON object"),
        ("", "its answer is no JSON"),
        ("[" * 100_000, "its answer is no JSON"),
        ('{"error": {"desc": "' + "x" * 5000 + '"}}', "x" * 1000),
    ],
)
def test_whatever_qemu_answers_has_a_reason_or_is_none(answer: str, reason: str) -> None:
    assert memory_device._error_in(answer) == reason


class Gone(libvirt.libvirtError):  # type: ignore[misc]  # libvirt has no types
    """The VM has ended, and libvirt has no definition of it."""

    def __init__(self) -> None:
        super().__init__("no domain")
        self.err = (libvirt.VIR_ERR_NO_DOMAIN, 0, "no domain", 0, "", "", "", 0, 0)


class Domain:
    """A VM that is defined and does not run.

    :param xml: its definition; ``None`` where it is gone by now.
    """

    def __init__(self, name: str, xml: str | None) -> None:
        self._name, self._xml = name, xml

    def isActive(self) -> bool:
        return False

    def isPersistent(self) -> bool:
        return True

    def UUIDString(self) -> str:
        return self._name

    def name(self) -> str:
        return self._name

    def XMLDesc(self, flags: int) -> str:
        if self._xml is None:
            raise Gone
        return self._xml


def test_the_vms_with_a_region_are_found_beside_vms_that_end_or_can_not_be_read() -> None:
    memory = shared_memory.SharedMemory("vmqos.lock-a", "/dev/pseudo_lock/vmqos.lock-a", 4096)
    pins = shared_memory.Pins(frozenset({0}), {0: frozenset({0})})
    xml = shared_memory.with_memory("<domain type='kvm'><vcpu>1</vcpu></domain>", memory, pins)
    deep = f"<domain>{'<a>' * 300}{'</a>' * 300}</domain>"
    domains = [Domain("gone", None), Domain("deep", deep), Domain("plain", "<domain/>"), Domain("with it", xml)]
    connection = SimpleNamespace(listAllDomains=lambda: domains)
    assert [vm.name for vm in memory_device.having(connection, memory.path)] == ["with it"]


MEMORY = shared_memory.SharedMemory("vmqos.lock-a", "/dev/pseudo_lock/vmqos.lock-a", 4096)
PINS = shared_memory.Pins(frozenset({0}), {0: frozenset({0})})
PLAIN = "<domain type='kvm'><title>old</title><vcpu>1</vcpu></domain>"


class Defined(Domain):
    """A VM whose definition another program changes, each time before one of the next reads."""

    def __init__(self, xml: str, changes: tuple[str, ...] = ()) -> None:
        super().__init__("web", xml)
        self.xml, self.written, self._reads, self._changes = xml, list[str](), 0, list(changes)

    def XMLDesc(self, flags: int) -> str:
        self._reads += 1
        if self._reads % 2 == 0 and self._changes:
            self.xml = self._changes.pop(0)
        return self.xml

    def lookupByUUIDString(self, uuid: str) -> Defined:
        return self

    def defineXML(self, xml: str) -> None:
        self.xml = xml
        self.written.append(xml)


def with_memory(title: str) -> str:
    return shared_memory.with_memory(PLAIN.replace("old", title), MEMORY, PINS)


def vm_of(xml: str) -> memory_device.Vm:
    return memory_device.Vm("uuid", "web", False, True, xml, "")


def test_what_another_program_changes_in_a_definition_meanwhile_is_kept_when_a_region_is_taken() -> None:
    domain = Defined(with_memory("old"), (with_memory("new"), with_memory("newer")))
    memory_device.take(domain, vm_of(with_memory("first")), MEMORY.path)
    assert not shared_memory.has_memory(domain.xml, MEMORY.path)
    assert "<title>newer</title>" in domain.xml
    assert len(domain.written) == 1


def test_a_definition_that_changes_again_and_again_is_left_to_the_other_program() -> None:
    changes = tuple(with_memory(str(number)) for number in range(100))
    domain = Defined(with_memory("old"), changes)
    with pytest.raises(exceptions.DefinitionChanged, match="VM web"):
        memory_device.take(domain, vm_of(with_memory("old")), MEMORY.path)
    assert domain.written == []


def test_a_definition_that_changed_since_the_pins_were_chosen_is_not_written() -> None:
    domain = Defined(PLAIN.replace("old", "new"))
    with pytest.raises(exceptions.DefinitionChanged):
        memory_device.give(domain, vm_of(PLAIN), MEMORY, PINS, None)
    assert domain.written == []
    memory_device.give(domain, vm_of(domain.xml), MEMORY, PINS, None)
    assert domain.xml == with_memory("new")


def test_where_a_vm_is_not_given_a_region_what_another_program_wrote_meanwhile_stays() -> None:
    domain = Defined(PLAIN)

    def change_it_and_fail() -> None:
        domain.xml = domain.xml.replace("old", "new")
        raise Gone

    domain.vcpuPinInfo = lambda _: change_it_and_fail()  # type: ignore[attr-defined]
    domain.getCPUMap = lambda: (1, [True], 1)  # type: ignore[attr-defined]
    with pytest.raises(Gone):
        memory_device.give(domain, vm_of(PLAIN), MEMORY, PINS, PINS)
    assert "<title>new</title>" in domain.xml
    assert not shared_memory.has_memory(domain.xml, MEMORY.path)


def test_a_definition_that_names_the_region_and_can_not_be_read_is_found_too() -> None:
    deep = f"<domain><title>{MEMORY.path}</title>{'<a>' * 300}{'</a>' * 300}</domain>"
    (vm,) = memory_device.having(SimpleNamespace(listAllDomains=lambda: [Domain("deep", deep)]), MEMORY.path)
    with pytest.raises(exceptions.UnreadableDescription):
        memory_device.take(Defined(deep), vm, MEMORY.path)
