# SPDX-License-Identifier: Apache-2.0
"""Small hosts on which a plan can be followed by eye: how they come to be, and what is on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import machine
from tests.unit.allocation.run_plan import follow, settle
from vmqos.allocation import (
    Allocation,
    Plan,
    Policy,
    PromiseState,
    Request,
    plan,
)
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import Capabilities

KEPT, PENDING, DEGRADED = PromiseState.KEPT, PromiseState.PENDING, PromiseState.DEGRADED
DEFAULT = Policy()
IO = 0x600


def host(*requests: Request, policy: Policy = DEFAULT, on: Capabilities | None = None) -> Kernel:
    """A machine of 11 ways on which these VMs were served."""
    kernel = Kernel(on or machine(11))
    settle(kernel, requests, policy)
    return kernel


def look(kernel: Kernel, requests: Iterable[Request], policy: Policy = DEFAULT) -> Plan:
    return plan(kernel.capabilities, kernel.layout(), list(requests), policy)


def carry_out(kernel: Kernel, requests: Iterable[Request], policy: Policy = DEFAULT) -> dict[int, Allocation]:
    """Plan once and do it; the verdicts by the VMs' numbers."""
    requests = list(requests)
    found = look(kernel, requests, policy)
    follow(kernel, requests, policy, found)
    return {int(key[:8], 16): verdict for key, verdict in found.allocations.items()}


def masks(kernel: Kernel, cache: int = 0) -> dict[str | int, int]:
    """The groups' ways: VMs by number, the default group as "", others by name."""
    return {
        int(name[6:14], 16) if name.startswith("vmqos.0") else name: mask[cache] for name, mask in kernel.masks.items()
    }


def ways(masks: Mapping[int, int]) -> Mapping[int, CapacityBitmask]:
    return {cache: CapacityBitmask(mask) for cache, mask in masks.items()}
