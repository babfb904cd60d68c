# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from vmqos.agent.backoff import Failure
from vmqos.agent.outcome import Outcome, borne_out, judge
from vmqos.agent.placement import Placed, Target
from vmqos.agent.wish import Wish
from vmqos.allocation import DEFAULT_GROUP, Group, Layout, Owner, PromiseState, Verdict
from vmqos.openstack.extra_specs import CacheRequest
from vmqos.resctrl.bitmask import CapacityBitmask

ASKS = Wish(request=CacheRequest(ways=2), asked=CacheRequest(ways=2))
KEPT = Verdict("u", PromiseState.KEPT, "vmqos.u", {0: CapacityBitmask(3)})
TARGET = Target("vmqos.u")


def placed(tasks: set[int], in_place: set[int], foreign: set[int] = frozenset()) -> Placed:  # type: ignore[assignment]
    return Placed(TARGET, frozenset(tasks), frozenset(in_place), frozenset(foreign))


def test_a_kept_promise_with_all_tasks_in_place_is_kept() -> None:
    outcome = judge(ASKS, KEPT, placed({1, 2}, {1, 2}), None)
    assert (outcome.state, outcome.reason, outcome.masks) == (PromiseState.KEPT, "", KEPT.masks)


def test_tasks_in_a_foreign_group_degrade_the_promise() -> None:
    outcome = judge(ASKS, KEPT, placed({1, 2}, {1}, {2}), None)
    assert outcome.state is PromiseState.DEGRADED and "1 of 2 tasks" in outcome.reason


def test_tasks_that_are_not_in_place_degrade_the_promise() -> None:
    outcome = judge(ASKS, KEPT, placed({1, 2}, {1}), None)
    assert outcome.state is PromiseState.DEGRADED and "1 of 2 tasks" in outcome.reason


def test_a_pending_vm_stays_pending_and_both_reasons_are_told() -> None:
    pending = Verdict("u", PromiseState.PENDING, reason="no room")
    outcome = judge(ASKS, pending, None, Failure("the kernel refused", 1.0, 0.0))
    assert outcome.state is PromiseState.PENDING and outcome.reason == "no room; the kernel refused"


def test_a_problem_degrades_what_is_kept() -> None:
    wish = Wish(request=CacheRequest(ways=2), problem="the VM has no vCPU 5")
    outcome = judge(wish, KEPT, placed({1}, {1}), None)
    assert outcome.state is PromiseState.DEGRADED and outcome.reason == wish.problem and outcome.masks == KEPT.masks


def test_a_bad_flavor_is_degraded_and_a_silent_one_is_nothing() -> None:
    assert judge(Wish(problem="hw:cache_ways=two"), None, None, None).state is PromiseState.DEGRADED
    assert judge(Wish(remark="made by hand"), None, None, None).state is PromiseState.NONE
    assert judge(Wish(remark="made by hand"), None, None, None).reason == "made by hand"


def layout(**masks: int) -> Layout:
    owners = {"default": (DEFAULT_GROUP, Owner.DEFAULT), "vm": (VM, Owner.VM), "other": ("other", Owner.FOREIGN)}
    return Layout(tuple(Group(*owners[name], {0: CapacityBitmask(mask)}) for name, mask in masks.items()))


VM = "vmqos.00000000-0000-4000-8000-000000000001"
OWN = Verdict("u", PromiseState.KEPT, VM, {0: CapacityBitmask(3)})


def test_ways_that_nobody_took_meanwhile_are_kept() -> None:
    assert borne_out(OWN, layout(default=0x7C, vm=3, other=0x4)) is OWN


def test_ways_that_somebody_took_meanwhile_degrade_the_promise() -> None:
    told = borne_out(OWN, layout(default=0x7C, vm=3, other=0x2))
    assert told.state is PromiseState.DEGRADED and "other" in told.reason and told.masks == OWN.masks


def test_ways_on_other_caches_are_nobodys_business() -> None:
    elsewhere = Group("other", Owner.FOREIGN, {1: CapacityBitmask(3)})
    assert borne_out(OWN, Layout((*layout(default=0x7C, vm=3).groups, elsewhere))) is OWN


def test_a_class_may_share_its_ways() -> None:
    shared = Verdict("u", PromiseState.KEPT, "vmqos.shared-ways2", {0: CapacityBitmask(3)})
    assert borne_out(shared, layout(default=0x7F, other=3)) is shared


def test_a_flavor_that_nobody_knows_yet_is_pending_and_what_the_vm_has_from_before_is_degraded() -> None:
    unknown = Wish(unknown="Nova's API has not told")
    assert judge(unknown, None, None, None) == Outcome(PromiseState.PENDING, "Nova's API has not told")
    kept = judge(unknown, KEPT, placed({1, 2}, {1, 2}), None)
    assert (kept.state, kept.reason, kept.masks) == (PromiseState.DEGRADED, "Nova's API has not told", KEPT.masks)
