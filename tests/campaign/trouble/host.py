# SPDX-License-Identifier: Apache-2.0
"""What happens to a host: VMs come, change and end, and other programs do as they like."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import subprocess
import sys
import time
import uuid as uuids
from collections.abc import Mapping
from dataclasses import replace

from tests.campaign.trouble.machine import KEPT_OPEN
from tests.campaign.trouble.quiet_host import (
    FULL_AUDIT,
    GIVES_IO_WAYS,
    VCPU_NAME,
    Pins,
    PlayedVm,
    QuietHost,
    Trouble,
)
from tests.campaign.trouble.vm import name_of
from tests.unit.agent.host import THREADS
from vmqos.agent.observe.starting_vms import StartingVm
from vmqos.conf.libvirt import DEFAULT_GROUP
from vmqos.hypervisor import processes
from vmqos.hypervisor.domain_xml import DomainDescription, Pinning
from vmqos.hypervisor.model import NovaMetadata, VirtualMachine
from vmqos.hypervisor.run_files import DomainStatus

LOOK_AGAIN = 10.0
"""Seconds until the agent looks again at a VM that libvirt could not describe, at most."""


class Host(QuietHost):
    """A host that is told what happens to it, and has its agent told as far as libvirt and the kernel would."""

    def reload(self, policy: str) -> None:
        """The operator writes another policy, and has the agent read it."""
        if self.policy == GIVES_IO_WAYS != policy:
            self._touch_those_on_io_ways()
        self.policy = policy
        self.act(self.agent._read_configuration_again)

    # The VMs.

    def new_vm(
        self,
        specs: Mapping[str, str],
        *,
        vcpus: int = 0,
        pins: Pins | None = None,
        uuid: str = "",
        has_cachetune: bool = False,
        is_incoming: bool = False,
    ) -> PlayedVm:
        """The process of a VM that libvirt does not list yet.

        :param pins: one of :attr:`Pins.vcpus` at least; ``None``: its threads may run anywhere.
        """
        self._number += 1
        uuid = uuid or str(uuids.UUID(int=self._number, version=4))
        command = ["sh", "-c", "read line"]
        if vcpus:
            command = [sys.executable, "-I", "-S", "-c", THREADS, "0", str(vcpus)]
        command += ["-uuid", uuid]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if vcpus:
            assert child.stdout is not None
            child.stdout.readline()
        every = frozenset(os.sched_getaffinity(0))
        pins = pins or Pins((every,) * max(1, vcpus), every)
        vm = PlayedVm(
            uuid=uuid,
            specs=specs,
            pid=child.pid,
            cpus=pins.others.union(*pins.vcpus),
            has_cachetune=has_cachetune,
            number=self._number,
            child=child,
            process=processes.of_pid(child.pid),
            pins=pins,
            vcpus=vcpus,
            is_incoming=is_incoming,
        )
        for tid in vm.tasks():
            os.sched_setaffinity(tid, pins.of(name_of(tid)))
        self.vms[uuid] = vm
        return vm

    def list_vm(self, vm: PlayedVm) -> None:
        """libvirt lists the VM, with what its flavor is now, and says so."""
        vm.is_listed = True
        metadata = NovaMetadata(f"vm{vm.number}", "flavor", "", dict(vm.specs))
        if vm.is_incoming and self.incoming_memory == DEFAULT_GROUP:
            vm.waiting = frozenset(tid for tid in vm.tasks() if VCPU_NAME.fullmatch(name_of(tid))) or None
        self.libvirt.vms[vm.uuid] = VirtualMachine(
            vm.uuid, vm.file, vm.number, vm.process, None, vm.has_cachetune, metadata, waiting_vcpus=vm.waiting
        )
        self.tell(vm.uuid)

    def end_migrations(self) -> None:
        """The memory of all VMs that come by a migration is there, and they run."""
        for vm in self.vms.values():
            if vm.is_incoming and vm.is_listed:
                vm.is_incoming = False
                if vm.waiting is not None:
                    vm.waiting = None
                    self.on_touch(vm)
                self.list_vm(vm)

    def begin_early(self, vm: PlayedVm, *, forked: bool) -> None:
        """libvirt writes the VM's status file; the agent is told of it unless the kernel's word is lost."""
        if self.is_blind or (forked and vm.told_early is not self.agent):
            return
        agent = self.agent
        domain = DomainDescription(
            vm.uuid, vm.file, vm.number, vm.has_cachetune, NovaMetadata(f"vm{vm.number}", "flavor", "", dict(vm.specs))
        )
        pinning = Pinning(tuple(map(_told, vm.pins.vcpus)), _told(vm.pins.others))
        status = DomainStatus(domain, pinning, vm.process.pid if forked else 0, True, vm.is_incoming)
        starting = StartingVm(vm.file, status, vm.process if forked else None)
        found: list[set[str]] = []

        # What goes wrong there is logged as its thread does, so that a fault of the agent's own is seen.
        if self.act(lambda: agent.start_watch._guarded(lambda: found.append(agent._early.begin([starting])))):
            vm.told_early = agent if found and vm.file not in found[0] else None
            if not forked:
                vm.passes_at_start = self.passes
            if forked:
                self.on_begun(vm)

    def watch_anew(self) -> None:
        """The agent has learnt that word of status files was lost, and begins anew with the files that are there."""
        self.is_blind = False
        files = {vm.file for vm in self.vms.values()}
        for file in [*self.agent._early._targets]:
            if file not in files:
                self.act(functools.partial(self.agent._on_end, file))
        for vm in self.vms.values():
            # libvirt is to tell of these: see StartWatch._follow.
            vm.told_early = None

    def end_vm(self, vm: PlayedVm, *, is_unlisted: bool = True, process_lives: bool = False) -> None:
        """The VM ends.

        :param is_unlisted: whether libvirt has noticed it.
        :param process_lives: whether its process has not ended yet.
        """
        if not process_lives:
            vm.child.kill()
            vm.child.communicate()
        if is_unlisted:
            vm.is_listed = False
            self.libvirt.vms.pop(vm.uuid, None)
            if not self.is_blind:
                self.act(lambda: self.agent._on_end(vm.file))
            self.tell(vm.uuid)
        if is_unlisted and not process_lives:
            del self.vms[vm.uuid]
            self.departed.append(vm.uuid)

    def change_flavor(self, vm: PlayedVm, specs: Mapping[str, str]) -> None:
        """Nova resizes the VM."""
        vm.specs = specs
        self.on_touch(vm)
        if vm.is_listed:
            self.list_vm(vm)

    def pin(self, vm: PlayedVm, cpus: frozenset[int]) -> None:
        """All threads of the VM may run on these CPUs only."""
        vm.cpus, vm.pins = cpus, Pins((cpus,) * len(vm.pins.vcpus), cpus)
        self.on_touch(vm)
        for tid in vm.tasks():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(tid, cpus)

    def plug(self, vm: PlayedVm) -> None:
        """The VM gets another vCPU."""
        if not vm.vcpus or not vm.is_alive:
            return
        assert vm.child.stdin is not None
        self.on_touch(vm)
        before = vm.tasks()
        vm.child.stdin.write(f"CPU {vm.vcpus}/KVM\n".encode())
        vm.child.stdin.flush()
        vm.vcpus += 1
        until = time.monotonic() + 30.0
        while not (fresh := vm.tasks() - before) and time.monotonic() < until:
            time.sleep(0.001)
        for tid in fresh:
            while name_of(tid) != f"CPU {vm.vcpus - 1}/KVM" and time.monotonic() < until:
                time.sleep(0.001)
            # It may run wherever any of the others may.
            os.sched_setaffinity(tid, vm.cpus)
        vm.pins = replace(vm.pins, vcpus=(*vm.pins.vcpus, vm.cpus))

    def tell(self, uuid: str | None) -> None:
        """libvirt sends an event, unless it is lost."""
        if self.is_deaf or not self.libvirt.is_connected:
            self.debt = max(self.debt, FULL_AUDIT)
        else:
            self.agent._on_change(uuid)

    def _touch_those_on_io_ways(self) -> None:
        """What these VMs have is not to be promised any more, and a mask may become smaller to leave such ways."""
        l3, groups = self.troubled.machine.hardware.profile.l3, self.troubled.groups()
        for vm in self.vms.values():
            masks = groups[vm.group].masks if vm.group in groups else {}
            if l3 is not None and any(mask & l3.shareable_bits for (level, _), mask in masks.items() if level == 3):
                self.on_touch(vm)

    # What is round about.

    def touch_all(self) -> None:
        """Another program did something that may break any promise."""
        self.meddled = True
        self.on_touch(None)

    def lock(self) -> None:
        """Another program takes the lock on resctrl."""
        if self.trouble.lock is None:
            self.trouble.lock = os.open(self.troubled.root, os.O_RDONLY)
            KEPT_OPEN.add(self.trouble.lock)
            fcntl.flock(self.trouble.lock, fcntl.LOCK_EX)

    def unlock(self) -> None:
        """It gives the lock back."""
        if self.trouble.lock is not None:
            os.close(self.trouble.lock)
            KEPT_OPEN.discard(self.trouble.lock)
            self.trouble.lock = None

    def calm(self) -> None:
        """All trouble ends; what could not be told before is told as soon as it can be."""
        self.unlock()
        self.killer.arm()
        self.during.clear()
        self.trouble = Trouble()
        if not self.troubled.machine.is_mounted:
            self.troubled.mount()
        for uuid in [*self.libvirt.hung]:
            self.libvirt.hung.pop(uuid).set()
        if self.libvirt.broken:
            self.libvirt.broken.clear()
            self.debt = max(self.debt, LOOK_AGAIN)
        if not self.libvirt.is_connected:
            self.connect()
        self.is_deaf = self.is_blind = False
        for vm in list(self.vms.values()):
            if not vm.is_alive or not vm.is_listed:
                self.end_vm(vm)
        self.end_migrations()

    def connect(self) -> None:
        """libvirt is there again."""
        self.libvirt.is_connected = True
        self.tell(None)

    def stranger(self) -> int:
        """The PID of a process that is no VM's."""
        child = subprocess.Popen(["sleep", "100000"])
        self.strangers.append(child)
        return child.pid

    def close(self) -> None:
        """End everything."""
        self.unlock()
        super().close()


def _told(cpus: frozenset[int]) -> str:
    """CPUs as libvirt's status file tells them."""
    return "" if cpus == os.sched_getaffinity(0) else ",".join(map(str, sorted(cpus)))
