# SPDX-License-Identifier: Apache-2.0
"""What the agent knew at the end of a pass: one immutable value, handed to the API's threads as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Policy, Request
from vmqos.host.resctrl_state import ResctrlState
from vmqos.resctrl import topology


@dataclass(frozen=True, slots=True)
class CacheTopology:
    """Where the caches are.

    :ivar cpus: the CPUs of each L3, by cache id; empty where sysfs does not say.
    :ivar sizes: bytes of each L3, by cache id.
    :ivar l2: the CPUs of each L2, by cache id.
    :ivar l2_sizes: bytes of each L2, by cache id.
    """

    cpus: Mapping[int, frozenset[int]] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    l2: Mapping[int, frozenset[int]] = field(default_factory=dict)
    l2_sizes: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def read(cls, sysfs_cpu: str) -> CacheTopology:
        """What sysfs says now."""
        l3, l2 = topology.read_caches(3, sysfs_cpu), topology.read_caches(2, sysfs_cpu)
        return cls(
            {cache: found.cpus for cache, found in l3.items()},
            {cache: found.size for cache, found in l3.items() if found.size is not None},
            {cache: found.cpus for cache, found in l2.items()},
            {cache: found.size for cache, found in l2.items() if found.size is not None},
        )

    def caches_of(self, cpus: frozenset[int]) -> frozenset[int]:
        """Ids of the L3s that one of these CPUs fills."""
        return frozenset(cache for cache, members in self.cpus.items() if members & cpus)

    def cores_of(self, vcpus: Iterable[frozenset[int]]) -> frozenset[int]:
        """Ids of the L2s of vCPUs that are pinned; none where one of them may run on the CPUs of several L2s.

        :param vcpus: the CPUs that each vCPU may run on.
        """
        found = [{cache for cache, members in self.l2.items() if members & cpus} for cpus in vcpus]
        return frozenset().union(*found) if all(len(cores) == 1 for cores in found) else frozenset()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The agent's knowledge.

    :ivar resctrl: resctrl as it was left; ``None`` while it can't be read.
    :ivar topology: where the caches are.
    :ivar policy: the operator's choices, as the last pass had them.
    :ivar vms: every VM by its UUID.
    :ivar requests: what the planner was last asked for.
    """

    resctrl: ResctrlState | None = None
    topology: CacheTopology = field(default_factory=CacheTopology)
    policy: Policy = field(default_factory=Policy)
    vms: Mapping[str, VmRecord] = field(default_factory=dict)
    requests: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """How well the loop itself works.

    :ivar looked: whether a pass has ended that knew from libvirt which VMs run.
    :ivar resctrl_error: why resctrl could not be read or written in the last pass; empty if it could.
    :ivar last_error: the last failure of a pass, however long ago.
    :ivar last_pass_seconds: how long the last pass took.
    :ivar looked_at: when the last complete look at the VMs ended, by the monotonic clock: libvirt listed the VMs, and
        all of them could be looked at; ``None`` before the first.
    :ivar passed_at: when the last pass without an error ended, by the monotonic clock; ``None`` before the first.
    :ivar unserved: why a VM that libvirt lists is not served yet, by UUID.
    """

    passes: int = 0
    last_pass_seconds: float = 0.0
    resctrl_error: str = ""
    last_error: str = ""
    looked: bool = False
    looked_at: float | None = None
    passed_at: float | None = None
    unserved: Mapping[str, str] = field(default_factory=dict)
