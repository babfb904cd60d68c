# SPDX-License-Identifier: Apache-2.0
"""Memory of the host as a PCI device of real VMs; here it is a file, which any host has."""

from __future__ import annotations

import os
from pathlib import Path

import libvirt
import pytest

from tools.lab import vms
from tools.lab.private_libvirt import PrivateLibvirt
from vmqos.hypervisor import exceptions
from vmqos.pseudo_lock import memory_device, shared_memory
from vmqos.pseudo_lock.shared_memory import SharedMemory

SIZE = 65536
CPU = min(os.sched_getaffinity(0))
PORT = "<controller type='pci' index='0' model='pcie-root'/><controller type='pci' index='1' model='pcie-root-port'/>"


@pytest.fixture
def memory(tmp_path: Path) -> SharedMemory:
    path = tmp_path / "region"
    path.write_bytes(bytes(SIZE))
    return SharedMemory("vmqos.lock-table", str(path), SIZE)


def start(host: PrivateLibvirt, machine: str, more: str) -> libvirt.virDomain:
    xml = vms.domain_xml(vms.Vm("memory", vms.Flavor("test"), vcpus=2))
    domain = host.connection().defineXML(
        xml.replace('machine="pc"', f'machine="{machine}"').replace("<devices>", f"<devices>{more}")
    )
    domain.create()
    return domain


def mapped(host: PrivateLibvirt, path: str) -> int:
    """How many bytes of a file the VM's QEMU has mapped."""
    maps = Path(f"/proc/{(host.run_dir / 'memory.pid').read_text().strip()}/maps").read_text()
    ranges = [line.split()[0].partition("-") for line in maps.splitlines() if line.endswith(path)]
    return sum(int(end, 16) - int(begin, 16) for begin, _, end in ranges)


@pytest.mark.parametrize(("machine", "more"), [("pc", ""), ("q35", PORT)], ids=["pc", "q35"])
def test_a_vm_has_the_memory_at_once_and_at_its_next_start_until_it_is_taken(
    libvirt_host: PrivateLibvirt, memory: SharedMemory, machine: str, more: str
) -> None:
    domain = start(libvirt_host, machine, more)
    with memory_device.connected(libvirt_host.uri) as connection:
        vm = memory_device.look(connection, domain.UUIDString())
        assert vm is not None and vm.running and vm.persistent
        pins = shared_memory.pins_within(vm.live, frozenset({CPU}))
        memory_device.give(connection, vm, memory, pins, pins)
        assert mapped(libvirt_host, memory.path) == SIZE
        assert [one.uuid for one in memory_device.having(connection, memory.path)] == [vm.uuid]
        assert domain.emulatorPinInfo()[CPU] and sum(domain.emulatorPinInfo()) == 1
        assert [sum(cpus) for cpus in domain.vcpuPinInfo()] == [1, 1]
        domain.destroy()
        domain.create()
        assert mapped(libvirt_host, memory.path) == SIZE
        domain.destroy()
        (vm,) = memory_device.having(connection, memory.path)
        memory_device.take(connection, vm, memory.path)
        domain.create()
        assert mapped(libvirt_host, memory.path) == 0


def test_what_is_changed_in_a_definition_after_it_was_read_stays(
    libvirt_host: PrivateLibvirt, memory: SharedMemory
) -> None:
    domain = libvirt_host.connection().defineXML(vms.domain_xml(vms.Vm("memory", vms.Flavor("test"), vcpus=2)))
    config, title = libvirt.VIR_DOMAIN_AFFECT_CONFIG, libvirt.VIR_DOMAIN_METADATA_TITLE
    with memory_device.connected(libvirt_host.uri) as connection:
        early = memory_device.look(connection, domain.UUIDString())
        assert early is not None
        pins = shared_memory.pins_within(early.xml, frozenset({CPU}))
        domain.setMetadata(title, "first", None, None, config)
        with pytest.raises(exceptions.DefinitionChanged):
            memory_device.give(connection, early, memory, pins, None)
        now = memory_device.look(connection, domain.UUIDString())
        assert now is not None
        memory_device.give(connection, now, memory, pins, None)
        assert domain.metadata(title, None, config) == "first"
        (having,) = memory_device.having(connection, memory.path)
        domain.setMetadata(title, "second", None, None, config)
        memory_device.take(connection, having, memory.path)
        assert domain.metadata(title, None, config) == "second"
        assert memory_device.having(connection, memory.path) == []


def test_a_running_q35_without_a_free_root_port_is_told_of_one(libvirt_host: PrivateLibvirt) -> None:
    domain = start(libvirt_host, "q35", "")
    with pytest.raises(exceptions.NoFreePort, match="root port"):
        memory_device.free_root_port(domain.XMLDesc())


def test_where_qemu_refuses_the_memory_the_vm_is_as_it_was(libvirt_host: PrivateLibvirt, memory: SharedMemory) -> None:
    domain = start(libvirt_host, "pc", "")
    lost = SharedMemory(memory.name, f"{memory.path}/no-directory", SIZE)
    inactive = libvirt.VIR_DOMAIN_XML_INACTIVE
    before, affinity = domain.XMLDesc(inactive), domain.emulatorPinInfo()
    with memory_device.connected(libvirt_host.uri) as connection:
        vm = memory_device.look(connection, domain.UUIDString())
        assert vm is not None
        pins = shared_memory.pins_within(vm.live, frozenset({CPU}))
        with pytest.raises(exceptions.QemuRefused, match="object-add"):
            memory_device.give(connection, vm, lost, pins, pins)
    assert (domain.XMLDesc(inactive), domain.emulatorPinInfo()) == (before, affinity)


def test_a_vm_that_libvirt_has_not_is_none(libvirt_host: PrivateLibvirt) -> None:
    with memory_device.connected(libvirt_host.uri) as connection:
        assert memory_device.look(connection, "00000000-0000-4000-8000-000000000009") is None


def test_without_libvirt_it_is_said_how_to_look(tmp_path: Path) -> None:
    uri = f"qemu+unix:///system?socket={tmp_path}/none"
    with pytest.raises(exceptions.NoHypervisor, match="virsh"), memory_device.connected(uri):
        pass
