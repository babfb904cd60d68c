# SPDX-License-Identifier: Apache-2.0
"""One VM on its way through a pass: observe, request, plan, act, judge."""

from __future__ import annotations

from dataclasses import dataclass, field

from vmqos.agent.act.move_tasks import TaskPlacement
from vmqos.agent.act.outside_time import OutsideTime
from vmqos.agent.observe.cache_vcpus import CacheVcpus
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.remember.promise_time import PromiseTime
from vmqos.allocation import Allocation, PromiseState
from vmqos.daemon.backoff import Failure


@dataclass(frozen=True, slots=True)
class VmRecord:
    """What the agent knows of one VM. Each step of a pass fills its own fields.

    :ivar observed: what libvirt and /proc say of it (observe).
    :ivar request: what its flavor asks for, as far as that is known now (request).
    :ivar vcpus: the vCPUs that get the ways, where its flavor names some (request).
    :ivar affinities: the CPUs of each vCPU that gets the ways, where they matter (request).
    :ivar tasks: where its tasks were at the last look at them; ``None`` before the first look (act).
    :ivar unmonitored: why it has no monitoring group; empty where it has one or needs none (act).
    :ivar outside: the CPU time of its tasks outside of its group; ``None`` where nothing was promised (act).
    :ivar allocation: what it has, and the state of its promise (judge).
    :ivar time: for how long its promise was kept; ``None`` before the first judgement (judge).
    :ivar failure: the last failure for it, if it was not corrected since (judge).
    """

    observed: ObservedVm
    request: FlavorRequest = field(default_factory=FlavorRequest)
    vcpus: CacheVcpus | None = None
    affinities: tuple[frozenset[int], ...] = ()
    tasks: TaskPlacement | None = None
    unmonitored: str = ""
    outside: OutsideTime | None = None
    allocation: Allocation = field(default_factory=lambda: Allocation(PromiseState.NONE))
    time: PromiseTime | None = None
    failure: Failure | None = None

    @property
    def uuid(self) -> str:
        """The VM's UUID."""
        return self.observed.vm.uuid

    @property
    def cpus(self) -> frozenset[int]:
        """The CPUs that the tasks with its ways may run on."""
        return self.vcpus.cpus if self.vcpus is not None else self.observed.cpus

    @property
    def threads(self) -> frozenset[int] | None:
        """The ids of the threads with its ways; ``None``: all of its tasks have them."""
        return self.vcpus.threads if self.vcpus is not None else self.observed.vm.waiting_vcpus

    @property
    def arrival(self) -> tuple[int, str]:
        """The key that orders VMs by their start, the first one first."""
        return self.observed.vm.process.start_time, self.uuid

    @property
    def bears_on_plan(self) -> tuple[object, ...]:
        """All that the planner, and the groups of the tasks, follow from: where it is equal, the plan is."""
        return self.observed.vm.process, self.request, self.vcpus, self.affinities, self.cpus, self.threads

    @property
    def is_unknown(self) -> bool:
        """Whether the agent does not know now what the flavor asks for; such a VM keeps what it has."""
        return bool(self.request.unknown) and not self.request.hands_off

    @property
    def wants_something(self) -> bool:
        """Whether the agent has to arrange something for it."""
        return self.request.wants is not None and not self.request.hands_off
