# SPDX-License-Identifier: Apache-2.0
"""Carry a plan out on a kernel in memory, and hold every state on the way to rules 1 to 3."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.allocation.kernel import Kernel
from vmqos.allocation import Plan, Policy, PromiseState, Request, WriteMasks, caches, plan
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.group_names import Owner, owner_of, vm_group


def asked(wants: CacheRequest, cache: int) -> int:
    """How many ways of a cache a VM asks for, for code and for data together."""
    if caches.level(cache) == 2:
        return wants.l2_ways or 0
    return (wants.ways or 0) + (wants.code_ways or 0) + (wants.data_ways or 0)


class Watch:
    """What must hold from now on: whose ways are nobody else's, and how many the default group has."""

    def __init__(self, kernel: Kernel, requests: Sequence[Request], policy: Policy) -> None:
        self.kernel = kernel
        self.own = {
            (vm_group(request.uuid), cache)
            for request in requests
            for cache in request.caches
            if request.wants.policy is CachePolicy.EXCLUSIVE and self._can_be_promised(request.wants, cache)
        }
        self.protected = {
            (name, cache) for name, cache in self.own if name in kernel.masks and self._is_alone(name, cache)
        }
        self.floor = {
            cache: min(max(policy.default_ways_min, kernel.resources[cache].min_cbm_bits, 1), mask.bit_count())
            for cache, mask in kernel.masks[""].items()
        }
        self.foreign = {name: dict(kernel.masks[name]) for name in kernel.masks if owner_of(name) is Owner.FOREIGN}
        self.limits = self._limits()
        self.overlap = {pair: self._foreign_overlap(*pair) for pair in self.own if pair[0] in kernel.masks}

    def _can_be_promised(self, wants: CacheRequest, cache: int) -> bool:
        """Whether there is a promise to hold: a cache without CDP has no ways for code and for data."""
        return asked(wants, cache) > 0 and (wants.code_ways is None or self.kernel.is_split(cache))

    def _limits(self) -> dict[str, dict[int, int]]:
        return {name: self.kernel.limits(name) for name in ("", *self.foreign) if name in self.kernel.masks}

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
        for uuid, verdict in found.allocations.items():
            assert verdict.group in kernel.masks
            for cache, mask in verdict.masks.items():
                assert kernel.masks[verdict.group][cache] == mask.bits
                if verdict.group == vm_group(uuid) and verdict.state is PromiseState.KEPT:
                    assert not mask.bits & kernel.others(verdict.group, cache)
            assert verdict.splits.items() <= kernel.parts(verdict.group).items()
            limits = kernel.limits(verdict.group)
            assert verdict.throttles.items() <= limits.items()
            if verdict.group == vm_group(uuid):
                unlimited = kernel.bandwidth.unit.unlimited
                assert all(limits[cache] == unlimited for cache in limits.keys() - verdict.throttles.keys())

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
        assert self._limits() == self.limits


def follow(kernel: Kernel, requests: Sequence[Request], policy: Policy, found: Plan, steps: int | None = None) -> None:
    """Carry out the plan, or the first of its steps; every state on the way is checked."""
    watch = Watch(kernel, requests, policy)
    granted = {
        (verdict.group, cache)
        for uuid, verdict in found.allocations.items()
        if verdict.group == vm_group(uuid)
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
