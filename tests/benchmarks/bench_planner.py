# SPDX-License-Identifier: Apache-2.0
"""The planner: how long a decision takes with 100 and 1000 VMs on the host."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.benchmarks.figures import Figure, percentile, spread
from vmqos.allocation import (
    CreateGroup,
    Group,
    Layout,
    Plan,
    Policy,
    RemoveGroup,
    Request,
    SetExclusive,
    WhenFull,
    WriteMasks,
    plan,
)
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.group_names import Owner, owner_of
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities

GOALS = {100: 5.0, 1000: 100.0}
ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine to plan for: its name, ways, caches, I/O ways and CLOSIDs."""

    name: str
    ways: int
    caches: int
    shareable: int
    closids: int

    def capabilities(self) -> Capabilities:
        """What its resctrl would say."""
        l3 = CacheResource(
            "L3",
            self.closids,
            CapacityBitmask.run(0, self.ways),
            1,
            CapacityBitmask(self.shareable),
            False,
            tuple(range(self.caches)),
        )
        return Capabilities({"L3": l3})


MACHINES = (
    Machine("2 x 11 ways", 11, 2, 0x600, 16),
    Machine("2 x 20 ways", 20, 2, 0xC0000, 16),
    Machine("16 x 16 ways", 16, 16, 0, 16),
)
POLICY = Policy(when_full=WhenFull.SHARE)


def run() -> Iterator[Figure]:
    """One figure for each machine and number of VMs."""
    for count, goal in GOALS.items():
        for machine in MACHINES:
            runs = [list(_samples(machine, count, shared)) for shared in (0.9, 0.5, 0.0)]
            changes = [sample for samples in runs for sample in samples[1:]]
            first = max(samples[0] for samples in runs)
            yield Figure(
                f"planner: {count} VMs on {machine.name}, p99",
                percentile(changes, 0.99),
                "ms",
                goal,
                f"of CPU, when one VM goes and one comes: {spread(changes, 'ms')}; "
                f"when all come at once: {first:.1f} ms",
            )


def _samples(machine: Machine, count: int, shared: float) -> Iterator[float]:
    """Milliseconds of CPU of one plan after the other; between two of them one VM goes and another one comes.

    The first one places everybody on an empty host. Few of the VMs can be served, as CLOSIDs and ways are few. Half of
    those that go had something, so that others move up and masks move.
    """
    luck = random.Random(count)
    capabilities = machine.capabilities()
    caches = range(machine.caches)
    every = CapacityBitmask.run(0, machine.ways)
    layout = Layout((Group("", Owner.DEFAULT, dict.fromkeys(caches, every)),))
    vms = [_vm(luck, number, caches, shared) for number in range(count)]
    for number in range(ROUNDS):
        start = time.process_time()
        found = plan(capabilities, layout, vms, POLICY)
        yield (time.process_time() - start) * 1e3
        layout = _after(layout, found, every)
        served = [request for request in vms if found.allocations[request.uuid].group]
        vms.remove(luck.choice(served if luck.random() < 0.5 else vms))
        vms.append(_vm(luck, count + number, caches, shared))


def _vm(luck: random.Random, number: int, caches: Sequence[int], shared: float) -> Request:
    """A VM on every cache, or pinned to one of them, as on real hosts."""
    policy = CachePolicy.SHARED if luck.random() < shared else CachePolicy.EXCLUSIVE
    pinned = frozenset([luck.choice(caches)]) if luck.random() < 0.5 else frozenset(caches)
    uuid = f"{luck.getrandbits(32):08x}-0000-4000-8000-{number:012x}"
    return Request(uuid, CacheRequest(ways=luck.choice([1, 1, 2, 2, 3, 4]), policy=policy), pinned, number)


def _after(layout: Layout, found: Plan, every: CapacityBitmask) -> Layout:
    """The layout when the plan is carried out."""
    groups = {group.name: group for group in layout.groups}
    for step in (*found.prepare, *found.retire):
        match step:
            case CreateGroup(name):
                groups[name] = Group(name, owner_of(name), dict.fromkeys(groups[""].masks, every))
            case WriteMasks(name, masks):
                groups[name] = replace(groups[name], masks={**groups[name].masks, **masks})
            case SetExclusive(name, exclusive):
                groups[name] = replace(groups[name], exclusive=exclusive)
            case RemoveGroup(name):
                del groups[name]
    return Layout(tuple(groups.values()))
