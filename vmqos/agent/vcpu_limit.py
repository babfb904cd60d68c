# SPDX-License-Identifier: Apache-2.0
"""The vCPUs that a flavor's ``hw:cache_vcpus`` names, as the VM has them: whose threads get the ways."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from vmqos.agent.inventory import ObservedVm
from vmqos.agent.wish import Wish
from vmqos.hypervisor import processes, vcpu_threads
from vmqos.hypervisor.exceptions import HypervisorError
from vmqos.hypervisor.model import VirtualMachine
from vmqos.openstack.extra_specs import VCPUS, cpu_spec

LOG = logging.getLogger(__name__)

UNNAMED = (
    f"{VCPUS.name} can't be followed: no thread of QEMU bears the name of a vCPU; either the VM is only just starting, "
    "or software emulation has one thread for all vCPUs"
)


@dataclass(frozen=True, slots=True)
class VcpuLimit:
    """Some vCPUs of one VM.

    :ivar asked: the vCPUs that the flavor names.
    :ivar present: those of them that the VM has now.
    :ivar affinities: the CPUs that each of these may run on.
    :ivar problem: why not all of them get the ways; empty where they do.
    :ivar threads: the ids of the present ones' threads.
    :ivar seen: the ids of all threads of QEMU's that were there before the vCPUs' were told.
    """

    asked: frozenset[int]
    present: frozenset[int]
    affinities: tuple[frozenset[int], ...]
    problem: str = ""
    threads: frozenset[int] = frozenset()
    seen: frozenset[int] = frozenset()

    @property
    def cpus(self) -> frozenset[int]:
        """The CPUs that at least one of the present ones may run on."""
        return frozenset().union(*self.affinities)

    def is_outdated(self, vm: VirtualMachine) -> bool:
        """Whether QEMU has threads that were not seen, or not all of those that get the ways."""
        try:
            now = processes.tasks(vm.process.pid)
        except HypervisorError:
            return False
        return not (now <= self.seen and self.threads <= now)


def look_at_all(
    vms: Mapping[str, ObservedVm], wishes: Mapping[str, Wish], before: Mapping[str, VcpuLimit]
) -> dict[str, VcpuLimit]:
    """The vCPUs of all VMs whose flavors name some, by the VMs' UUIDs.

    :param before: what was found the last time, for VMs that can't be looked at now.
    """
    limits = {}
    for uuid, wish in wishes.items():
        asked = wish.request.vcpus if wish.request is not None else None
        if asked is None or wish.hands_off:
            continue
        try:
            limits[uuid] = look(vms[uuid].vm, asked)
        except (HypervisorError, OSError) as error:
            LOG.info("the vCPUs of VM %s can't be looked at now: %s", uuid, error)
            limits[uuid] = before.get(uuid) or VcpuLimit(asked, frozenset(), (), str(error))
    return limits


def look(vm: VirtualMachine, asked: frozenset[int]) -> VcpuLimit:
    """Look at a VM's vCPUs.

    :param asked: those that the flavor names.
    :raises vmqos.hypervisor.exceptions.ProcessVanished: if the VM's QEMU process has ended.
    """
    seen = frozenset(processes.tasks(vm.process.pid))
    found = vcpu_threads.find(vm)
    present = asked & found.keys()
    threads = frozenset(found[number] for number in present)
    affinities = tuple(processes.affinities(sorted(threads)))
    return VcpuLimit(asked, present, affinities, problem(asked, found.keys()), threads, seen)


def problem(asked: frozenset[int], there: Collection[int]) -> str:
    """What is wrong with naming these vCPUs of a VM that has those; pure."""
    if not there:
        return UNNAMED
    missing = asked.difference(there)
    if not missing:
        return ""
    return (
        f"{VCPUS.name} names {cpu_spec.show(asked)}, and the VM has no vCPU {cpu_spec.show(missing)}: "
        f"its vCPUs are {cpu_spec.show(there)}"
    )
