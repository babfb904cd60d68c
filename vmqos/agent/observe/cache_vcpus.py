# SPDX-License-Identifier: Apache-2.0
"""Finding the threads of the vCPUs that a flavor's ``hw:cache_vcpus`` names: these threads get the ways.

Only its name tells which vCPU a thread runs, and a VM may have thousands of threads. So the agent looks at the threads
before it takes the lock on resctrl, and uses under the lock what it found.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.observe.running_vms import ERROR_LENGTH, ObservedVm, unexpected
from vmqos.daemon.backoff import Backoff
from vmqos.daemon.log_once import LogOnce
from vmqos.extra_specs import VCPUS, cpu_spec
from vmqos.hypervisor import processes, vm_tasks
from vmqos.hypervisor.exceptions import HypervisorError
from vmqos.hypervisor.model import VirtualMachine
from vmqos.reason import NO_REASON, Code, Reason

UNNAMED = Reason(
    Code.NO_VCPU,
    f"{VCPUS.name} can't be followed: no thread of QEMU bears the name of a vCPU; either the VM is only just starting, "
    "or software emulation has one thread for all vCPUs",
)

BUDGET = 0.2
"""Seconds after which a pass looks again at no more VMs: the VMs that it found in order wait for it meanwhile."""


@dataclass(frozen=True, slots=True)
class CacheVcpus:
    """The vCPUs of one VM that get the ways.

    :ivar asked: the vCPUs that the flavor names.
    :ivar present: those of them that the VM has now.
    :ivar affinities: the CPUs that each of these may run on.
    :ivar problem: why not all of them get the ways; empty where they do.
    :ivar threads: the ids of the threads that run the present vCPUs.
    :ivar seen: the ids of all threads that QEMU had before the threads of the vCPUs were searched for.
    """

    asked: frozenset[int]
    present: frozenset[int]
    affinities: tuple[frozenset[int], ...]
    problem: Reason = NO_REASON
    threads: frozenset[int] = frozenset()
    seen: frozenset[int] = frozenset()

    @property
    def cpus(self) -> frozenset[int]:
        """The CPUs that at least one of the present vCPUs may run on."""
        return frozenset().union(*self.affinities)

    def is_outdated(self, vm: VirtualMachine) -> bool:
        """Whether QEMU has a thread that was not seen, or lacks one of the threads that get the ways."""
        try:
            now = processes.tasks(vm.process.pid)
        except Exception:  # whatever it is, the next look at the VM meets it, and reports it
            return False
        return not (now <= self.seen and self.threads <= now)


@dataclass(frozen=True, slots=True)
class Vcpus:
    """What was found of the vCPUs of all VMs whose vCPUs matter for the ways, by the VMs' UUIDs.

    :ivar limits: the vCPUs that get the ways, for VMs whose flavors name some.
    :ivar affinities: the CPUs that each vCPU may run on, for VMs that ask for ways of the L2 for all their vCPUs.
    :ivar unknown: why the vCPUs could not be looked at, for VMs that need one of these: such a VM keeps what it has.
    """

    limits: Mapping[str, CacheVcpus] = field(default_factory=dict)
    affinities: Mapping[str, Sequence[frozenset[int]]] = field(default_factory=dict)
    unknown: Mapping[str, Reason] = field(default_factory=dict)

    def of(self, uuid: str, asked: frozenset[int] | None) -> CacheVcpus | Sequence[frozenset[int]] | None:
        """What was found of a VM; ``None`` where that does not suffice.

        :param asked: the vCPUs that its flavor names now; ``None`` where it names none.
        """
        if asked is None:
            # The affinities are empty if the VM had no vCPUs yet.
            return self.affinities.get(uuid) or None
        limit = self.limits.get(uuid)
        return limit if limit is not None and limit.asked == asked else None

    def differs(self, before: Vcpus, uuid: str) -> bool:
        """Whether something else was found of a VM than before."""
        return (self.limits.get(uuid), self.affinities.get(uuid)) != (
            before.limits.get(uuid),
            before.affinities.get(uuid),
        )


class VcpuWatch:
    """Looks at the vCPUs of VMs, where they may have changed. A pass asks it if the ways of any VM follow vCPUs.

    :param backoff: says when a look that failed is tried again, by ``("vcpus", uuid)``.
    :param once: knows what was logged already.
    :param clock: monotonic seconds.
    """

    def __init__(self, backoff: Backoff, once: LogOnce, clock: Callable[[], float] = time.monotonic) -> None:
        self._backoff = backoff
        self._once = once
        self._clock = clock
        self._vcpus = Vcpus()
        self._young = frozenset[str]()
        self._owed: tuple[str, ...] = ()
        self._requests: Mapping[str, FlavorRequest] | None = None

    def look(
        self, vms: Mapping[str, ObservedVm], requests: Mapping[str, FlavorRequest], changed: Set[str]
    ) -> tuple[Vcpus, frozenset[str]]:
        """Look at the vCPUs of the VMs that changed or that have other threads than before.

        :param requests: what the flavor of each VM asks for, by UUID; the same object as the last time only if nothing
            in it has changed.
        :param changed: UUIDs of the VMs that may have changed.
        :returns: what is known of all VMs, and the UUIDs of those whose threads may have to be moved.
        """
        before, limits = self._vcpus, self._vcpus.limits
        born = frozenset(uuid for uuid, limit in limits.items() if uuid in vms and limit.is_outdated(vms[uuid].vm))
        # The thread of a new vCPU gets its name and its CPUs some time after it was made.
        again, self._young = self._young & vms.keys(), born
        failed = {key[1] for key in self._backoff.due() if isinstance(key, tuple) and key[0] == "vcpus"}
        # The VMs that the last pass had no time for come first.
        wanted = list(dict.fromkeys([*self._owed, *sorted(changed | born | again | failed)]))
        if wanted or requests is not self._requests or self._lacks_some():
            self._vcpus, self._owed = self._look_at_all(vms, requests, wanted)
            self._requests = requests
            # The pass that they changed for may have had no time for them, or they could not be looked at then.
            again |= {uuid for uuid in vms if self._vcpus.differs(before, uuid)}
        return self._vcpus, born | again

    @property
    def is_owing(self) -> bool:
        """Whether time ran out before all VMs were looked at that may have changed."""
        return bool(self._owed)

    def _lacks_some(self) -> bool:
        """Whether a VM had no vCPUs yet, or could not be looked at and may be now."""
        found = self._vcpus
        return not all(found.affinities.values()) or any(
            not self._backoff.waits(("vcpus", uuid)) for uuid in found.unknown
        )

    def _look_at_all(
        self, vms: Mapping[str, ObservedVm], requests: Mapping[str, FlavorRequest], again: Sequence[str]
    ) -> tuple[Vcpus, tuple[str, ...]]:
        """Look at the vCPUs of VMs whose flavors name some, or that ask for ways of the L2.

        What was found the last time stays for a VM that can't be looked at now.

        :param again: UUIDs of the VMs to be looked at even if something is known of them, in order.
        :returns: what is known now, and the UUIDs of the VMs that :data:`BUDGET` did not suffice for, in order.
        """
        limits, affinities = dict[str, CacheVcpus](), dict[str, Sequence[frozenset[int]]]()
        unknown, owed = dict[str, Reason](), list[str]()
        before, until = self._vcpus, math.inf
        for uuid in [*again, *(requests.keys() - set(again))]:
            request = requests.get(uuid)
            if request is None or request.wants is None or not request.follows_vcpus:
                continue
            known = before.of(uuid, request.wants.vcpus)
            if known is not None and (uuid not in again or self._clock() >= until):
                if isinstance(known, CacheVcpus):
                    limits[uuid] = known
                else:
                    affinities[uuid] = known
                if uuid in again:
                    owed.append(uuid)
                continue
            if uuid in before.unknown and uuid not in again and self._backoff.waits(("vcpus", uuid)):
                unknown[uuid] = before.unknown[uuid]
                continue
            until = min(until, self._clock() + BUDGET)
            found = self._try_to_look(vms[uuid].vm, request.wants.vcpus)
            if isinstance(found, CacheVcpus):
                limits[uuid] = found
            elif not isinstance(found, Reason):
                affinities[uuid] = found
            elif uuid in before.limits and request.wants.vcpus is not None:
                limits[uuid] = replace(before.limits[uuid], problem=found)
            else:
                unknown[uuid] = found
        return Vcpus(limits, affinities, unknown), tuple(owed)

    def _try_to_look(
        self, vm: VirtualMachine, asked: frozenset[int] | None
    ) -> CacheVcpus | Sequence[frozenset[int]] | Reason:
        """Look at a VM's vCPUs; return why that failed where it did.

        :param asked: the vCPUs that the flavor names; ``None``: all of them, whose affinities are returned.
        """
        key = ("vcpus", vm.uuid)
        try:
            found = look(vm, asked) if asked is not None else vm_tasks.vcpu_affinities(vm.process.pid)
            self._backoff.succeed(key)
            self._once.end(key)
            return found
        except (HypervisorError, OSError) as error:
            trouble = Reason(Code.NOT_READABLE, f"its vCPUs can't be looked at now: {error}"[:ERROR_LENGTH])
            self._once.log(logging.INFO, key, "VM %s: %s", vm.uuid, trouble)
        except Exception as error:
            trouble = unexpected("looking at its vCPUs", error)
            self._once.log(logging.ERROR, key, "VM %s: %s", vm.uuid, trouble, error=error)
        if not self._backoff.waits(key):
            self._backoff.fail(key, trouble)
        return trouble


def look(vm: VirtualMachine, asked: frozenset[int]) -> CacheVcpus:
    """Look at a VM's vCPUs.

    :param asked: the vCPUs that the flavor names.
    :raises vmqos.hypervisor.exceptions.ProcessVanished: if the VM's QEMU process has ended.
    """
    seen = frozenset(processes.tasks(vm.process.pid))
    found = vm_tasks.of_vcpus(vm.process)
    present = asked & found.keys()
    threads = frozenset(found[number] for number in present)
    affinities = tuple(processes.affinities(sorted(threads)))
    return CacheVcpus(asked, present, affinities, problem(asked, found.keys()), threads, seen)


def problem(asked: frozenset[int], there: Collection[int]) -> Reason:
    """Why not all of the vCPUs that a flavor names get the ways; empty where they do; pure.

    :param asked: the vCPUs that the flavor names.
    :param there: the vCPUs that the VM has.
    """
    if not there:
        return UNNAMED
    missing = asked.difference(there)
    if not missing:
        return NO_REASON
    return Reason(
        Code.NO_VCPU,
        f"{VCPUS.name} names {cpu_spec.show(asked)}, and the VM has no vCPU {cpu_spec.show(missing)}: "
        f"its vCPUs are {cpu_spec.show(there)}",
    )
