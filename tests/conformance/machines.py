# SPDX-License-Identifier: Apache-2.0
"""The machines and kernels that the cases are tried on, as the simulator's profiles.

The lab's guest (:mod:`tests.kernel.lab.machines`) has the processor of the simulator's profile of that name but fewer
CPUs, QEMU's caches, and fewer RMIDs; here is the profile of that guest. The cases take their expectations from it, on
either target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from tests.kernel.lab.pair import Pair
from vmqos.simulator.hardware.kernel_versions import LINUX_6_12, LINUX_7_2, Kernel
from vmqos.simulator.hardware.profiles import PROFILES, CacheAllocation, Monitoring, Profile
from vmqos.simulator.hardware.topology import regular

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


def _genoa() -> Profile:
    """The same with bandwidth of slow memory and ways for devices."""
    milan, genoa = _milan(), PROFILES["genoa"]
    return replace(milan, name="genoa", l3=genoa.l3, slow_bandwidth=genoa.slow_bandwidth)


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


def _simulated(name: str) -> Profile:
    """One that no processor of the lab's is, with as few CPUs as the others: cases know no more than four.

    If its packages count, they do so for fewer RMIDs than its caches, as where they are switched on all the same (with
    parameter ``rdt=perf``).
    """
    profile = PROFILES[name]
    monitoring, packages = profile.monitoring, profile.packages
    if monitoring is not None and packages is not None:
        monitoring, packages = replace(monitoring, num_rmids=64), replace(packages, num_rmids=48)
    topology = replace(_TWO_SOCKETS, nodes_per_l3=profile.topology.nodes_per_l3)
    return replace(profile, topology=topology, monitoring=monitoring, packages=packages)


_PROFILES = (
    _guest_of("cascade-lake", 32),
    _guest_of("broadwell", 48),
    _guest_of("sapphire-rapids", 64),
    _milan(),
    _genoa(),
    _goldmont(),
)
GUESTS = tuple(profile.name for profile in _PROFILES)
"""Each machine of the lab that the cases are tried on."""

_ONLY_SIMULATED = tuple(map(_simulated, ("mpam", "clearwater-forest", "sapphire-rapids-snc2")))

PROFILE_OF: Mapping[str, Profile] = MappingProxyType(
    {profile.name: profile for profile in (*_PROFILES, *_ONLY_SIMULATED)}
)
"""These, and those that no processor of the lab's is: QEMU has none of Arm's with MPAM, none whose packages count, and
none with sub-NUMA nodes."""

KERNEL_OF: Mapping[str, Kernel] = MappingProxyType({"6.12": LINUX_6_12, "newest": LINUX_7_2})
"""What the simulator runs for each kernel of the lab."""

TARGETS = ("simulator", "kernel")
SIMULATOR, KERNEL = TARGETS

PAIRS = tuple(Pair(machine, kernel) for machine in GUESTS for kernel in KERNEL_OF)
"""Every machine of the lab with every kernel."""

SIMULATED = tuple(Pair(profile.name, "newest") for profile in _ONLY_SIMULATED)
"""The other machines, with the kernel that they have."""


def profile_of(pair: Pair) -> Profile:
    """A machine with its kernel as the simulator has them."""
    return replace(PROFILE_OF[pair.machine], kernel=KERNEL_OF[pair.kernel])


def monitoring_of(profile: Profile) -> Monitoring:
    """What a machine counts; only for cases that need monitoring."""
    assert profile.monitoring is not None
    return profile.monitoring


def classes_of(profile: Profile, cdp: int = 0) -> int:
    """How many control groups there can be, the default one included: as many as the poorest resource has classes.

    :param cdp: the level of the cache whose masks are for code or for data; it has half as many then.
    """
    resources = [one for one in (profile.l3, profile.l2, profile.bandwidth, profile.slow_bandwidth) if one is not None]
    return min(one.num_closids // (2 if getattr(one, "level", None) == cdp else 1) for one in resources)
