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
