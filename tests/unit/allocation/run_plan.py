# SPDX-License-Identifier: Apache-2.0
"""Carry a plan out on a kernel in memory, and hold every state on the way to rules 1 to 3."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.allocation.kernel import Kernel
from vmqos.allocation import Owner, Plan, Policy, PromiseState, Request, WriteMasks, owner_of, plan, vm_group
from vmqos.openstack.extra_specs import CachePolicy


class Watch:
    """What must hold from now on: whose ways are nobody else's, and how many the default group has."""

    def __init__(self, kernel: Kernel, requests: Sequence[Request], policy: Policy) -> None:
        self.kernel = kernel
        self.own = {
            (vm_group(request.uuid), cache)
            for request in requests
            if request.wants.policy is CachePolicy.EXCLUSIVE
            for cache in request.caches
        }
        self.protected = {
            (name, cache) for name, cache in self.own if name in kernel.masks and self._is_alone(name, cache)
        }
        least = max(policy.default_ways_min, kernel.l3.min_cbm_bits, 1)
        self.floor = {cache: min(least, mask.bit_count()) for cache, mask in kernel.masks[""].items()}
        self.foreign = {name: dict(kernel.masks[name]) for name in kernel.masks if owner_of(name) is Owner.FOREIGN}
        self.overlap = {pair: self._foreign_overlap(*pair) for pair in self.own if pair[0] in kernel.masks}

    def _ours(self) -> list[str]:
        return [name for name in self.kernel.masks if owner_of(name) is not Owner.FOREIGN]

    def _is_alone(self, name: str, cache: int) -> bool:
        return not self.kernel.masks[name][cache] & self.kernel.others(name, cache, self._ours())

    def _foreign_overlap(self, name: str, cache: int) -> int:
        foreign = [other for other in self.kernel.masks if owner_of(other) is Owner.FOREIGN]
        return self.kernel.masks[name][cache] & self.kernel.others(name, cache, foreign)

    def end(self, found: Plan) -> None:
        """Check that what the plan says of VMs with ways of their own is true."""
        kernel = self.kernel
        for verdict in found.verdicts.values():
            assert verdict.group in kernel.masks
            for cache, mask in verdict.masks.items():
                assert kernel.masks[verdict.group][cache] == mask.bits
                if verdict.group == vm_group(verdict.uuid) and verdict.state is PromiseState.KEPT:
                    assert not mask.bits & kernel.others(verdict.group, cache)

    def step(self, step: object, granted: set[tuple[str, int]]) -> None:
        """Note what the step put into force, and check the state after it."""
        kernel = self.kernel
        if isinstance(step, WriteMasks):
            written = {(step.group, cache) for cache in step.masks} & granted
            self.protected |= {pair for pair in written if self._is_alone(*pair)}
        ours = [name for name in self._ours() if name != kernel.fresh]
        for name, cache in self.protected:
            if name not in kernel.masks:
                continue
            assert not kernel.masks[name][cache] & kernel.others(name, cache, ours), (name, cache, step)
            new = self._foreign_overlap(name, cache) & ~self.overlap.get((name, cache), 0)
            assert not new or name == kernel.fresh, (name, cache, step)
        for cache, floor in self.floor.items():
            assert kernel.masks[""][cache].bit_count() >= floor, (cache, step)
        for name, masks in self.foreign.items():
            assert kernel.masks[name] == masks


def follow(kernel: Kernel, requests: Sequence[Request], policy: Policy, found: Plan, steps: int | None = None) -> None:
    """Carry out the plan, or the first of its steps; every state on the way is checked."""
    watch = Watch(kernel, requests, policy)
    granted = {
        (verdict.group, cache)
        for verdict in found.verdicts.values()
        if verdict.group == vm_group(verdict.uuid)
        for cache in verdict.masks
    }
    for step in (*found.prepare, *found.retire)[:steps]:
        kernel.apply(step)
        watch.step(step, granted)
    if steps is None:
        watch.end(found)


def settle(kernel: Kernel, requests: Sequence[Request], policy: Policy) -> list[Plan]:
    """Plan and follow until there is nothing left to do."""
    plans = []
    for _ in range(4):
        found = plan(kernel.capabilities, kernel.layout(), requests, policy)
        plans.append(found)
        if not found.prepare and not found.retire:
            return plans
        follow(kernel, requests, policy, found)
    raise AssertionError(f"no end: {plans[-1]}")
