# SPDX-License-Identifier: Apache-2.0
"""The machines of the matrix, as profiles: the simulator's, and those of the lab's guests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from tests.conformance.machines import GUESTS, KERNEL, KERNEL_OF, MIB, PROFILE_OF, SIMULATOR
from tests.features.place import Place
from tests.kernel.lab.machines import MACHINES
from vmqos.simulator.hardware.profiles import PROFILES, Profile
from vmqos.simulator.hardware.topology import regular

_MILAN_KVM = replace(
    PROFILE_OF["milan"],
    name="milan-kvm",
    topology=regular(sockets=2, cores=1, threads=1, l3_size=32 * MIB, l2_size=MIB // 2, l3_ways=16, l2_ways=8),
)
_GUESTS = {**{name: PROFILE_OF[name] for name in GUESTS}, "milan-kvm": _MILAN_KVM}


def _places() -> dict[Place, Profile]:
    simulated = {Place(SIMULATOR, profile.kernel.version, machine): profile for machine, profile in PROFILES.items()}
    booted = {
        Place(KERNEL, kernel, machine): replace(_GUESTS[machine], kernel=KERNEL_OF[kernel])
        for kernel in KERNEL_OF
        for machine in MACHINES
        if machine in _GUESTS
    }
    return simulated | booted


PROFILE_AT: Mapping[Place, Profile] = MappingProxyType(_places())
"""Every machine with every kernel that it has, on either target; but ``milan-shared`` and ``milan-abmc``, which
differ in their cache and their counters, and not in features."""
