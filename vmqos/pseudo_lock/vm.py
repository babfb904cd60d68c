# SPDX-License-Identifier: Apache-2.0
"""A locked region for a VM: the device in the VM, and the VM on the CPUs of that cache."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from vmqos.hypervisor.exceptions import DefinitionChanged, HypervisorError, NoHypervisor
from vmqos.pseudo_lock import exceptions, lifecycle, memory_device, shared_memory
from vmqos.pseudo_lock.lifecycle import Wanted
from vmqos.pseudo_lock.memory_device import Vm
from vmqos.pseudo_lock.regions import Host, Lock
from vmqos.pseudo_lock.shared_memory import Pins, SharedMemory
from vmqos.resctrl import mount, pseudo_lock
from vmqos.resctrl.exceptions import ResctrlError

PAGE = 4096

LET_GO, LOOK = 5.0, 0.1
"""Seconds that QEMU may take to unmap a region after ``object-del``, and from one look to the next: its thread for RCU
does that, some 60 ms later."""

__all__ = ["Given", "HypervisorError", "NoHypervisor", "Taken", "create", "take"]


@dataclass(frozen=True, slots=True)
class Given:
    """A lock that a VM was given.

    :ivar lock: the lock.
    :ivar uuid: the VM's UUID.
    :ivar name: its libvirt name.
    :ivar now: whether it has the device already; otherwise from its next start on.
    :ivar emulator: the CPUs that QEMU's main thread is confined to, as libvirt writes them.
    :ivar vcpus: those of each vCPU by its number.
    :ivar arguments: QEMU's, as they are in the definition.
    """

    lock: Lock
    uuid: str
    name: str
    now: bool
    emulator: str
    vcpus: Mapping[int, str]
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a lock's device in the definitions of VMs.

    :ivar names: the libvirt names of the VMs whose definition has it no more.
    :ivar problems: why a VM's definition still has it, by the VM's libvirt name.
    """

    names: tuple[str, ...]
    problems: Mapping[str, str]


def create(host: Host, wanted: Wanted, uri: str, uuid: str, next_start: bool) -> Given:
    """Lock ways and give the region to a VM; if either fails, everything is as it was.

    :param uri: libvirt's connection URI.
    :param next_start: whether a VM that runs is left as it is until its next start.
    :raises vmqos.pseudo_lock.exceptions.LockError: if it can't be done.
    :raises vmqos.hypervisor.exceptions.HypervisorError: if libvirt or QEMU refuses.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl is not there, or the kernel refuses.
    """
    if wanted.size < PAGE or wanted.size & (wanted.size - 1):
        raise exceptions.SizeForGuest(size=wanted.size)
    with memory_device.connected(uri) as connection:
        vm = memory_device.look(connection, uuid)
        if vm is None:
            raise exceptions.VmCannot(vm=uuid, reason="libvirt has none of that UUID ('virsh list --all --uuid')")
        cpus = lifecycle.check(host, wanted)
        if mount.find(host.path).simulated:
            raise exceptions.VmCannot(vm=vm.name, reason="a simulated region has no device that QEMU could map")
        pins, pins_now = _all_pins(vm, wanted, cpus, next_start)
        if pins_now is not None:
            memory_device.free_root_port(vm.live)
        elif not vm.persistent:
            raise exceptions.VmCannot(vm=vm.name, reason="it is transient, so that there is no next start")
        lock = lifecycle.create(host, wanted)
        memory = SharedMemory(lock.group, lock.device, wanted.size)
        try:
            memory_device.let_open(connection, vm, lock.device)
            for tries_left in reversed(range(memory_device.TRIES)):
                try:
                    memory_device.give(connection, vm, memory, pins, pins_now)
                    break
                except DefinitionChanged:
                    # Locking takes a while. Another definition may have other pins and another number of vCPUs.
                    vm = memory_device.look(connection, uuid)
                    if vm is None or not tries_left:
                        raise
                    pins, pins_now = _all_pins(vm, wanted, cpus, next_start)
        except BaseException as error:
            _take_back(host, wanted.name, error)
            raise
    vcpus = {number: shared_memory.cpu_list(allowed) for number, allowed in pins.vcpus.items()}
    emulator = shared_memory.cpu_list(pins.emulator)
    return Given(lock, vm.uuid, vm.name, pins_now is not None, emulator, vcpus, memory.arguments)


def _take_back(host: Host, name: str, error: BaseException) -> None:
    """Remove a lock once QEMU has let the region go.

    :param error: why the VM was not given it.
    :raises vmqos.pseudo_lock.exceptions.NotTakenBack: if QEMU has not, or the kernel refuses.
    """
    until = time.monotonic() + LET_GO
    while True:
        try:
            lifecycle.remove(host, name)
            return
        except exceptions.WaysNotGivenBack:
            # The region is gone, and the agent's next pass gives its ways to the default group.
            return
        except (exceptions.LockInUse, ResctrlError) as problem:
            if time.monotonic() >= until or isinstance(problem, ResctrlError):
                raise exceptions.NotTakenBack(error=error, problem=problem, name=name) from error
        time.sleep(LOOK)


def take(uri: str, lock: Lock) -> Taken:
    """Take a lock's device out of the definitions of VMs, which would not start without it; pins stay as they are.

    :raises vmqos.hypervisor.exceptions.HypervisorError: if libvirt does not list its VMs, or is not there.
    """
    path = pseudo_lock.device(lock.group)
    names, problems = [], {}
    with memory_device.connected(uri) as connection:
        for vm in memory_device.having(connection, path):
            try:
                memory_device.take(connection, vm, path)
                names.append(vm.name)
            except HypervisorError as error:
                problems[vm.name] = str(error)
    return Taken(tuple(names), problems)


def _all_pins(vm: Vm, wanted: Wanted, cpus: frozenset[int], next_start: bool) -> tuple[Pins, Pins | None]:
    """The pins from a VM's next start on, and those of now if it gets the region at once."""
    at_once = vm.running and not next_start
    return _pins(vm, vm.xml, wanted, cpus), _pins(vm, vm.live, wanted, cpus) if at_once else None


def _pins(vm: Vm, xml: str, wanted: Wanted, cpus: frozenset[int]) -> Pins:
    pins = shared_memory.pins_within(xml, cpus)
    threads = {"QEMU's main thread (emulatorpin)": pins.emulator}
    threads |= {f"vCPU {number}": allowed for number, allowed in pins.vcpus.items()}
    lacking = ", ".join(name for name, allowed in threads.items() if not allowed)
    if lacking:
        where = f"the CPUs of {wanted.cache} ({shared_memory.cpu_list(cpus) or 'none is known'})"
        reason = f"its pins keep {lacking} off {where}; who maps the region must run there alone"
        raise exceptions.VmCannot(vm=vm.name, reason=reason)
    return pins
