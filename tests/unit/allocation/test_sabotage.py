# SPDX-License-Identifier: Apache-2.0
"""Each of these faults, planted into the planner, is caught by the oracle; without one the same stories hold."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.allocation.oracle import Broken
from tests.unit.allocation.story import Story
from vmqos.allocation import given, planner, planner_input
from vmqos.allocation.cache_ways import CacheWays
from vmqos.allocation.masks import detours, route, steps, target
from vmqos.allocation.masks.progress import Progress
from vmqos.allocation.masks.target import Target
from vmqos.allocation.model import Allocation, Policy, Split, Step
from vmqos.allocation.planner_input import PlannerInput
from vmqos.allocation.rights import admission, cache_budget, claims
from vmqos.group_names import DEFAULT_GROUP, Owner
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource

STORIES = 400
"""In so many stories a fault has to show."""

Patch = pytest.MonkeyPatch


def _foreign_ways_are_free(patch: Patch) -> None:
    real = planner_input._cache_ways

    def cache_ways(resource: CacheResource, cache: int, policy: Policy, foreign: int, default: int) -> CacheWays:
        return replace(real(resource, cache, policy, 0, default), foreign=foreign)

    patch.setattr(planner_input, "_cache_ways", cache_ways)


def _ways_of_io_are_given_out(patch: Patch) -> None:
    real = planner_input._cache_ways

    def cache_ways(resource: CacheResource, cache: int, policy: Policy, foreign: int, default: int) -> CacheWays:
        return real(resource, cache, replace(policy, use_shareable_ways=True), foreign, default)

    patch.setattr(planner_input, "_cache_ways", cache_ways)


def _the_floor_is_one_way_lower(patch: Patch) -> None:
    real = planner_input._cache_ways

    def cache_ways(*given: Any) -> CacheWays:
        found = real(*given)
        return replace(found, floor=found.floor - 1)

    patch.setattr(planner_input, "_cache_ways", cache_ways)


def _masks_may_be_too_small(patch: Patch) -> None:
    real = planner_input._cache_ways
    patch.setattr(planner_input, "_cache_ways", lambda *given: replace(real(*given), fewest=1))


def _nobody_is_in_the_way(patch: Patch) -> None:
    patch.setattr(Progress, "in_the_way", lambda *_: [])


def _who_grows_is_written_before_who_shrinks(patch: Patch) -> None:
    real = Progress.in_the_way

    def in_the_way(self: Progress, name: str, cache: int, mask: int) -> list[str]:
        now = self.masks.get(name, {}).get(cache, 0)
        return [] if mask.bit_count() > now.bit_count() else real(self, name, cache, mask)

    patch.setattr(Progress, "in_the_way", in_the_way)


def _nothing_is_given_back(patch: Patch) -> None:
    patch.setattr(admission, "_give_back", lambda *given: None)


def _what_was_granted_is_forgotten(patch: Patch) -> None:
    real = claims._with_debts
    patch.setattr(claims, "_with_debts", lambda found, claim: replace(real(found, claim), owed={}))


def _who_waits_comes_before_who_has(patch: Patch) -> None:
    real = claims.read

    def emptied(found: PlannerInput) -> list[claims.Claim]:
        return [replace(claim, held={}, near={}, owed={}) for claim in real(found)]

    patch.setattr(planner, "read", emptied)


def _one_way_is_kept_back(patch: Patch) -> None:
    real = cache_budget._pack_into
    patch.setattr(cache_budget, "_pack_into", lambda gaps, lengths: real([gap - 1 for gap in gaps], lengths))


def _no_order_is_searched_and_nobody_steps_aside(patch: Patch) -> None:
    patch.setattr(planner, "route", lambda *given: None)
    patch.setattr(detours, "make_way", lambda progress: (next(iter(progress.inputs.cache_ways)), []))


def _the_search_pushes_nobody(patch: Patch) -> None:
    patch.setattr(detours, "make_way", lambda progress: (next(iter(progress.inputs.cache_ways)), []))
    patch.setattr(route, "_push", lambda state, row, places: ())
    patch.setattr(steps, "_follow", _follow_blindly)


def _follow_blindly(progress: Progress, cache: int, writes: Sequence[tuple[str, int]]) -> Iterator[Step]:
    for name, mask in writes:
        yield from steps._write(progress, name, {cache: mask})


def _groups_of_others_are_removed(patch: Patch) -> None:
    real = target.build

    def build(*given: Any) -> Target:
        found = real(*given)
        return replace(found, retired=(*found.retired, "pqos"))

    patch.setattr(planner, "build", build)


def _groups_are_never_removed(patch: Patch) -> None:
    real = target.build
    patch.setattr(planner, "build", lambda *given: replace(real(*given), retired=()))


def _vms_pay_on_every_cache(patch: Patch) -> None:
    real = claims.read

    def read(found: PlannerInput) -> list[claims.Claim]:
        every = frozenset(found.cache_ways)
        return real(replace(found, requests=[replace(each, caches=every) for each in found.requests]))

    patch.setattr(planner, "read", read)


def _code_and_data_are_one(patch: Patch) -> None:
    patch.setattr(target, "split", lambda ways, *parts: Split(CapacityBitmask(ways), CapacityBitmask(ways)))


def _the_default_group_is_limited(patch: Patch) -> None:
    real = steps._throttle

    def throttle(found: PlannerInput, goal: Target) -> Iterator[Step]:
        for step in real(found, goal):
            yield step
            yield replace(step, group=DEFAULT_GROUP)

    patch.setattr(steps, "_throttle", throttle)


def _limits_are_told_and_not_written(patch: Patch) -> None:
    patch.setattr(steps, "_throttle", lambda found, goal: iter(()))


def _intruders_are_not_told(patch: Patch) -> None:
    real = given._exclusive

    def exclusive(found: PlannerInput, claim: claims.Claim, result: admission.Admission, goal: Target) -> Allocation:
        alone = replace(goal, masks={claim.group: goal.masks[claim.group]})
        return real(replace(found, names={**found.names, Owner.FOREIGN: ()}), claim, result, alone)

    patch.setattr(given, "_exclusive", exclusive)


def _foreign_groups_are_ours(patch: Patch) -> None:
    real = planner_input.read_input

    def read_input(*given: Any) -> PlannerInput:
        found = real(*given)
        return replace(found, ours=tuple(sorted(found.ours + found.names[Owner.FOREIGN])))

    patch.setattr(planner, "read_input", read_input)


FAULTS: dict[Callable[[Patch], None], set[int]] = {
    _foreign_ways_are_free: {1},
    _ways_of_io_are_given_out: {1},
    _the_floor_is_one_way_lower: {2},
    _masks_may_be_too_small: {3},
    _nobody_is_in_the_way: {0, 1},
    _who_grows_is_written_before_who_shrinks: {0, 1},
    _nothing_is_given_back: {4},
    _what_was_granted_is_forgotten: {4},
    _who_waits_comes_before_who_has: {1, 4},
    _one_way_is_kept_back: {5},
    _no_order_is_searched_and_nobody_steps_aside: {4, 5, 16},
    _the_search_pushes_nobody: {0, 1, 4},
    _groups_of_others_are_removed: {0, 7},
    _foreign_groups_are_ours: {7},
    _groups_are_never_removed: {9},
    _vms_pay_on_every_cache: {11},
    _code_and_data_are_one: {16},
    _the_default_group_is_limited: {7},
    _limits_are_told_and_not_written: {16},
    _intruders_are_not_told: {1},
}
"""Each fault, and the numbers of the rules by which it may be caught first; 0 is the kernel."""


def caught() -> Broken | None:
    """What the oracle says in the first story in which it says something."""
    for seed in range(STORIES):
        try:
            Story(random.Random(seed)).go()
        except Broken as broken:
            return broken
    return None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.strip("_"))
def test_a_planted_fault_is_caught(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    broken = caught()
    assert broken is not None and broken.rule in FAULTS[fault], broken
