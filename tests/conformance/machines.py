# SPDX-License-Identifier: Apache-2.0
"""The machines and kernels that the cases are tried on, as the simulator's profiles.

The lab's guest (:mod:`tests.kernel.lab.machines`) has the processor of the simulator's profile of that name but fewer
CPUs, QEMU's caches, and fewer RMIDs; here is the profile of that guest. The cases take their expectations from it, on
either target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from vmqos.simulator.kernel import LINUX_6_12, LINUX_7_2, Kernel
from vmqos.simulator.profiles import PROFILES, CacheAllocation, Monitoring, Profile
from vmqos.simulator.topology import regular

MIB = 1 << 20
_INTEL = {"threads": 1, "l3_size": 16 * MIB, "l2_size": 4 * MIB, "l3_ways": 16, "l2_ways": 16}
_TWO_SOCKETS = regular(sockets=2, cores=2, **_INTEL)
_UNIT = 65536
"""Bytes in which the lab's processor counts."""


def _guest_of(name: str, rmids: int) -> Profile:
    """An Intel machine of two sockets with two CPUs each."""
    profile = PROFILES[name]
    assert profile.monitoring is not None
    return replace(profile, topology=_TWO_SOCKETS, monitoring=replace(profile.monitoring, num_rmids=rmids, scale=_UNIT))


def _milan() -> Profile:
    """Four sockets of one CPU; the kernel takes the size of QEMU's L2 for that of the last cache."""
    milan = PROFILES["milan"]
    assert milan.monitoring is not None
    return replace(
        milan,
        topology=regular(sockets=4, cores=1, threads=1, l3_size=32 * MIB, l2_size=MIB // 2, l3_ways=16, l2_ways=8),
        monitoring=replace(milan.monitoring, num_rmids=64, scale=_UNIT, threshold_limit=MIB // 2),
    )


def _goldmont() -> Profile:
    """A small core of 2016: ways of the L2 can be allocated, and nothing else; nothing is monitored."""
    return Profile(
        "goldmont",
        "one socket, L2 of 8 ways and 4 classes, cache pseudo-locking",
        LINUX_6_12,
        regular(sockets=1, cores=4, **_INTEL),
        l2=CacheAllocation(2, 8, 4),
        pseudo_lock=True,
    )


_PROFILES = (
    _guest_of("cascade-lake", 32),
    _guest_of("broadwell", 48),
    _guest_of("sapphire-rapids", 64),
    _milan(),
    _goldmont(),
)
PROFILE_OF: Mapping[str, Profile] = MappingProxyType({profile.name: profile for profile in _PROFILES})
"""Each machine of the lab that the cases are tried on."""

KERNEL_OF: Mapping[str, Kernel] = MappingProxyType({"6.12": LINUX_6_12, "newest": LINUX_7_2})
"""What the simulator runs for each kernel of the lab."""

SIMULATOR, KERNEL = "simulator", "kernel"


@dataclass(frozen=True, slots=True)
class Pair:
    """A machine and the kernel it runs.

    :ivar machine: of :data:`PROFILE_OF`.
    :ivar kernel: of :data:`KERNEL_OF`.
    """

    machine: str
    kernel: str

    def __str__(self) -> str:
        return f"{self.machine}-{self.kernel}"

    @property
    def profile(self) -> Profile:
        """The machine as the simulator has it."""
        return replace(PROFILE_OF[self.machine], kernel=KERNEL_OF[self.kernel])


PAIRS = tuple(Pair(machine, kernel) for machine in PROFILE_OF for kernel in KERNEL_OF)


def monitoring_of(profile: Profile) -> Monitoring:
    """What a machine counts; only for cases that need monitoring."""
    assert profile.monitoring is not None
    return profile.monitoring
