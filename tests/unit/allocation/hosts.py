# SPDX-License-Identifier: Apache-2.0
"""Hosts that things happen to, for the planner's property-based tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.unit.allocation.kernel import Kernel, Refused
from tests.unit.allocation.machines import EXCLUSIVE, SHARED, machines, policies, promises, uuid
from tests.unit.allocation.run_plan import settle
from vmqos.allocation import Policy, Request

FOREIGN = ("containers", "pqos", "qemu-1-a-vcpus_0")
EVERYTHING = (
    *("start", "start", "start", "stop", "resize", "policy", "pin"),
    *("foreign", "foreign gone", "configuration", "cache back"),
)


@dataclass
class Host:
    """A machine, its configuration and its VMs by number."""

    kernel: Kernel
    policy: Policy
    vms: dict[int, Request]
    clock: int = 0

    @property
    def requests(self) -> list[Request]:
        return list(self.vms.values())


@st.composite
def hosts(draw: st.DrawFn, most_ways: int = 20, most_caches: int = 4) -> Host:
    """A host with some history, on which things happened that nobody looked at yet."""
    host = Host(Kernel(draw(machines(most_ways, most_caches))), draw(policies()), {})
    for _ in range(draw(st.integers(0, 6))):
        for _ in range(draw(st.integers(1, 3))):
            draw(happens(host))
        settle(host.kernel, host.requests, host.policy)
    for _ in range(draw(st.integers(1, 4))):
        draw(happens(host))
    return host


@st.composite
def happens(draw: st.DrawFn, host: Host, events: Sequence[str] = EVERYTHING) -> None:
    """One thing happens, if it can."""
    l3, event, number = host.kernel.l3, draw(st.sampled_from(events)), draw(st.integers(1, 7))
    caches = frozenset(draw(st.sets(st.sampled_from(l3.cache_ids), min_size=1)))
    cores = [cache for cache in host.kernel.resources if cache < 0]
    caches |= draw(st.sets(st.sampled_from(cores), max_size=2)) if cores else frozenset()
    wants = draw(promises(max(2, l3.way_count // 2)))
    if event == "configuration":
        host.policy = draw(policies())
    elif event == "foreign":
        _foreign_group(draw, host.kernel, draw(st.sampled_from(FOREIGN)))
    elif event == "foreign gone":
        name = draw(st.sampled_from(FOREIGN))
        host.kernel.masks.pop(name, None)
        host.kernel.throttles.pop(name, None)
        host.kernel.splits.pop(name, None)
        host.kernel.exclusive.discard(name)
    elif event == "cache back":
        host.kernel.come_online(draw(st.sampled_from(sorted(host.kernel.resources))))
    elif event == "start" and number not in host.vms:
        host.clock += 1
        host.vms[number] = Request(uuid(number), wants, caches, host.clock)
    elif event == "stop":
        host.vms.pop(number, None)
    elif number in host.vms:
        vm = host.vms[number]
        other = SHARED if vm.wants.policy is EXCLUSIVE else EXCLUSIVE
        host.vms[number] = {
            "resize": replace(vm, wants=wants),
            "policy": replace(vm, wants=replace(vm.wants, policy=other)),
            "pin": replace(vm, caches=caches),
        }.get(event, vm)


def _foreign_group(draw: st.DrawFn, kernel: Kernel, name: str) -> None:
    """Somebody makes a group, and perhaps gives it ways of its own; where the kernel refuses, it keeps what it has."""
    l3, fewest = kernel.l3, max(1, kernel.l3.min_cbm_bits)
    if name not in kernel.masks:
        try:
            kernel.mkdir(name)
        except Refused:
            return
    if draw(st.booleans()):
        kernel.throttles[name] = {draw(st.sampled_from(l3.cache_ids)): 40}
    for cache, resource in kernel.resources.items() if draw(st.booleans()) else ():
        length = draw(st.integers(fewest, 3))
        start = draw(st.integers(0, resource.way_count - length))
        try:
            kernel.write(name, {cache: ((1 << length) - 1) << start})
        except Refused:
            continue
