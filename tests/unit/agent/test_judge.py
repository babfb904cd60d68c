# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest

from tests.unit.agent.serve.test_vms import UUID
from tests.unit.agent.serve.test_vms import snapshot as made_up_host
from vmqos.agent import judge as judging
from vmqos.agent.act.move_tasks import TaskGroup, TaskPlacement
from vmqos.agent.judge import as_counted, judge, judge_all
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Allocation, Group, Layout, Plan, PromiseState, Split
from vmqos.daemon.backoff import Backoff, Failure
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import DEFAULT_GROUP, Owner
from vmqos.host.resctrl_state import ResctrlState
from vmqos.reason import NO_REASON, Code, Reason, joined
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import Capabilities

NO_ROOM, REFUSED = Reason(Code.NO_WAYS, "no room"), Reason(Code.REFUSED, "the kernel refused")
NO_VCPU = Reason(Code.NO_VCPU, "the VM has no vCPU 5")
MADE_BY_HAND = Reason(Code.NO_EXTRA_SPECS, "made by hand")
NOT_TOLD = Reason(Code.FLAVOR_UNKNOWN, "Nova's API has not told")

ASKS = FlavorRequest(wants=CacheRequest(ways=2), asked=CacheRequest(ways=2))
KEPT = Allocation(PromiseState.KEPT, "vmqos.u", {0: CapacityBitmask(3)})
TARGET = TaskGroup("vmqos.u")


def borne_out(given: Allocation, layout: Layout, unlimited: int | None = None) -> Allocation:
    """On a host that can't limit memory bandwidth, unless told."""
    return judging.borne_out(given, layout, unlimited)


def placed(tasks: set[int], in_place: set[int], foreign: set[int] = frozenset()) -> TaskPlacement:  # type: ignore[assignment]
    return TaskPlacement(TARGET, frozenset(tasks), frozenset(in_place), frozenset(foreign))


def test_a_kept_promise_with_all_tasks_in_place_is_kept() -> None:
    outcome = judge(ASKS, KEPT, placed({1, 2}, {1, 2}), None)
    assert (outcome.state, outcome.reason, outcome.masks) == (PromiseState.KEPT, NO_REASON, KEPT.masks)


def test_tasks_in_a_foreign_group_degrade_the_promise() -> None:
    outcome = judge(ASKS, KEPT, placed({1, 2}, {1}, {2}), None)
    assert outcome.state is PromiseState.DEGRADED and "1 of 2 tasks" in outcome.reason.text


def test_tasks_that_are_not_in_place_degrade_the_promise() -> None:
    outcome = judge(ASKS, KEPT, placed({1, 2}, {1}), None)
    assert outcome.state is PromiseState.DEGRADED and "1 of 2 tasks" in outcome.reason.text


def test_a_pending_vm_stays_pending_and_both_reasons_are_told() -> None:
    pending = Allocation(PromiseState.PENDING, reason=NO_ROOM)
    outcome = judge(ASKS, pending, None, Failure(REFUSED, 1.0, 0.0))
    assert outcome.state is PromiseState.PENDING and outcome.reason.text == "no room; the kernel refused"


def test_a_problem_degrades_what_is_kept() -> None:
    wish = FlavorRequest(wants=CacheRequest(ways=2), problem=NO_VCPU)
    outcome = judge(wish, KEPT, placed({1}, {1}), None)
    assert outcome.state is PromiseState.DEGRADED and outcome.reason == wish.problem and outcome.masks == KEPT.masks


def test_a_bad_flavor_is_degraded_and_a_silent_one_is_nothing() -> None:
    assert judge(FlavorRequest(problem=NO_VCPU), None, None, None).state is PromiseState.DEGRADED
    assert judge(FlavorRequest(remark=MADE_BY_HAND), None, None, None).state is PromiseState.NONE
    assert judge(FlavorRequest(remark=MADE_BY_HAND), None, None, None).reason is MADE_BY_HAND


def layout(**masks: int) -> Layout:
    owners = {
        "default": (DEFAULT_GROUP, Owner.DEFAULT),
        "vm": (VM, Owner.VM),
        "shared": (CLASS, Owner.CLASS),
        "other": ("other", Owner.FOREIGN),
    }
    return Layout(tuple(Group(*owners[name], {0: CapacityBitmask(mask)}) for name, mask in masks.items()))


CLASS = "vmqos.shared-ways2"
VM = "vmqos.00000000-0000-4000-8000-000000000001"
OWN = Allocation(PromiseState.KEPT, VM, {0: CapacityBitmask(3)})


def test_ways_that_nobody_took_meanwhile_are_kept() -> None:
    assert borne_out(OWN, layout(default=0x7C, vm=3, other=0x4)) is OWN


@pytest.mark.parametrize("theirs", [0x3, 0xFF], ids=["ways of its own", "all of a cache that just came online"])
@pytest.mark.parametrize(("last", "is_lent"), [(None, False), (OWN, True)])
def test_a_group_with_ways_of_another_vm_is_no_grant_for_a_vm_that_was_elsewhere(
    last: Allocation | None, is_lent: bool, theirs: int
) -> None:
    """The kernel refused the group's own masks, and the default group has left what the kernel's first one has."""
    other = Group(f"{VM[:-1]}2", Owner.VM, {0: CapacityBitmask(theirs)})
    groups = (*layout(default=0xE0, vm=0x0F).groups, other)
    now = ResctrlState((0, 0, 0), Capabilities(), Layout(groups), {}, {})
    mine = Allocation(PromiseState.KEPT, VM, {0: CapacityBitmask(0xC)})
    plan = Plan((), {UUID: mine, "2": Allocation(PromiseState.KEPT, other.name, other.masks)}, ())
    assert judging.in_force(now, plan, last, mine).state is (PromiseState.DEGRADED if is_lent else PromiseState.PENDING)
    alone = replace(now, layout=layout(default=0xE0, vm=0x0F))
    assert judging.in_force(alone, plan, last, mine).state is PromiseState.DEGRADED


@pytest.mark.parametrize(("last", "is_theirs"), [(None, True), (OWN, False)])
def test_a_group_with_all_its_ways_is_no_grant_while_the_kernel_refuses_to_take_them_from_another(
    last: Allocation | None, is_theirs: bool
) -> None:
    """On a cache that came online, the other group has all ways until its own are written."""
    other = Group(f"{VM[:-1]}2", Owner.VM, {0: CapacityBitmask(0xFF)})
    now = ResctrlState((0, 0, 0), Capabilities(), Layout((*layout(default=0xE0, vm=3).groups, other)), {}, {})
    plan = Plan((), {UUID: OWN, "2": Allocation(PromiseState.KEPT, other.name, {0: CapacityBitmask(0xC)})}, ())
    cut_short = judging.in_force(now, plan, last, OWN, is_cut_short=True)
    assert (cut_short.state, cut_short.group) == ((PromiseState.PENDING, "") if is_theirs else (PromiseState.KEPT, VM))
    alone = replace(now, layout=layout(default=0xE0, vm=3))
    assert judging.in_force(alone, plan, last, OWN, is_cut_short=True) is OWN


@pytest.mark.parametrize("last", [None, OWN])
def test_a_group_gives_its_ways_though_it_has_all_of_a_cache_that_just_came_online(last: Allocation | None) -> None:
    every, mine = CapacityBitmask(0x7FF), CapacityBitmask(3)
    groups = (
        Group(DEFAULT_GROUP, Owner.DEFAULT, {0: CapacityBitmask(0x7FC), 1: every}),
        Group(VM, Owner.VM, {0: mine, 1: every}),
    )
    now = ResctrlState((0, 0, 0), Capabilities(), Layout(groups), {}, {})
    given = replace(OWN, masks={0: mine, 1: CapacityBitmask(0xC)})
    told = judging.in_force(now, Plan((), {UUID: given}, ()), last, given)
    assert (told.state, told.group, told.masks) == (PromiseState.DEGRADED, VM, {0: mine})


@pytest.mark.parametrize("theirs", [0xC, 0x3], ids=["ways of their own", "ways of the VM's class"])
@pytest.mark.parametrize("last", [None, "its class", "another group"])
@pytest.mark.parametrize("has", [{}, {1: 50}])
def test_a_vm_with_a_limit_alone_is_where_it_was_unless_that_is_in_other_vms_ways(
    has: dict[int, int], last: str | None, theirs: int
) -> None:
    name = "vmqos.shared-mb50"
    given = Allocation(PromiseState.KEPT, name, throttles={0: 50, 1: 50})
    groups = (
        Group(DEFAULT_GROUP, Owner.DEFAULT, {0: CapacityBitmask(0xF0)}),
        Group(name, Owner.CLASS, {0: CapacityBitmask(0xF3)}, throttles=has),
        Group(VM, Owner.VM, {0: CapacityBitmask(theirs)}),
    )
    now = ResctrlState((0, 0, 0), Capabilities(), Layout(groups), {}, {})
    plan = Plan((), {UUID: given, "2": OWN}, ())
    before = {None: None, "its class": given, "another group": OWN}[last]
    told = judging.in_force(now, plan, before, given, is_cut_short=True)
    stays = last == "its class" and theirs == 0xC
    assert told.group == (name if stays else "") and told.throttles == (has if stays else {})
    assert told.state is (PromiseState.DEGRADED if stays and has else PromiseState.PENDING)


def test_ways_that_somebody_took_meanwhile_degrade_the_promise() -> None:
    told = borne_out(OWN, layout(default=0x7C, vm=3, other=0x2))
    assert told.state is PromiseState.DEGRADED and "other" in told.reason.text and told.masks == OWN.masks


def test_a_vm_that_lacks_something_else_is_told_of_them_too() -> None:
    lacking = replace(OWN, state=PromiseState.DEGRADED, reason=NO_VCPU)
    told = borne_out(lacking, layout(default=0x7D, vm=3))
    assert told.state is PromiseState.DEGRADED and told.masks == OWN.masks
    assert NO_VCPU.text in told.reason.text and "the default group" in told.reason.text


def test_ways_that_the_planner_knew_to_be_shared_are_told_once() -> None:
    known = replace(OWN, state=PromiseState.DEGRADED, reason=Reason(Code.OVERLAPPED, "other has ways of this VM"))
    assert borne_out(known, layout(default=0x7C, vm=3, other=0x2)) is known


def test_ways_that_the_planner_knew_to_be_shared_are_told_once_beside_a_weightier_reason() -> None:
    reason = joined(Reason(Code.NO_BANDWIDTH, "no MBA"), Reason(Code.OVERLAPPED, "other has ways of this VM"))
    known = replace(OWN, state=PromiseState.DEGRADED, reason=joined(NO_VCPU, reason))
    assert known.reason.code is Code.NO_BANDWIDTH
    assert borne_out(known, layout(default=0x7C, vm=3, other=0x2)) is known


def test_ways_on_other_caches_are_nobodys_business() -> None:
    elsewhere = Group("other", Owner.FOREIGN, {1: CapacityBitmask(3)})
    assert borne_out(OWN, Layout((*layout(default=0x7C, vm=3).groups, elsewhere))) is OWN


def test_a_class_may_share_its_ways() -> None:
    shared = Allocation(PromiseState.KEPT, CLASS, {0: CapacityBitmask(3)})
    assert borne_out(shared, layout(default=0x7F, shared=3, other=3)) is shared


@pytest.mark.parametrize("mask", [0x1, 0x7, 0x6])
@pytest.mark.parametrize("name", [VM, CLASS])
def test_a_mask_that_is_not_what_was_granted_is_told_as_it_is(name: str, mask: int) -> None:
    granted = Allocation(PromiseState.KEPT, name, {0: CapacityBitmask(3)})
    found = layout(default=0x70, **{"vm" if name == VM else "shared": mask})
    told = borne_out(granted, found)
    assert told.state is PromiseState.DEGRADED and told.masks == {0: CapacityBitmask(mask)}
    assert f"L3 cache 0 has the mask {mask:x} instead of 3" in told.reason.text
    assert told.reason.code is Code.CHANGED_OUTSIDE


def test_a_cache_that_went_offline_meanwhile_is_told_no_more() -> None:
    granted = replace(OWN, masks={0: CapacityBitmask(3), 1: CapacityBitmask(3)}, throttles={0: 50, 1: 50})
    default = Group(DEFAULT_GROUP, Owner.DEFAULT, {0: CapacityBitmask(0x7C)}, throttles={0: 100})
    own = Group(VM, Owner.VM, OWN.masks, throttles={0: 50})
    assert borne_out(granted, Layout((default, own))) == replace(OWN, throttles={0: 50})


def test_a_class_may_have_its_limit_where_only_others_of_its_vms_can_run() -> None:
    name = "vmqos.shared-mb50"
    granted = Allocation(PromiseState.KEPT, name, throttles={0: 50})
    default = Group(DEFAULT_GROUP, Owner.DEFAULT, {}, throttles={0: 100, 1: 100})
    both = Group(name, Owner.CLASS, {}, throttles={0: 50, 1: 50})
    assert borne_out(granted, Layout((default, both)), unlimited=100) is granted


def test_parts_for_code_and_data_that_are_not_what_was_granted_are_told() -> None:
    mine, swapped = (Split(CapacityBitmask(a), CapacityBitmask(b)) for a, b in ((1, 2), (2, 1)))
    granted = replace(OWN, splits={0: mine})
    group = Group(VM, Owner.VM, OWN.masks, splits={0: swapped})
    told = borne_out(granted, Layout((group,)))
    assert told.state is PromiseState.DEGRADED and "2 for code and 1 for data instead of 1 and 2" in told.reason.text
    assert told.splits == {0: swapped}
    assert borne_out(granted, Layout((replace(group, splits={0: mine}),))) is granted


@pytest.mark.parametrize("limits", [{}, {0: 100}])
def test_a_limit_of_bandwidth_that_is_not_what_was_granted_is_told(limits: dict[int, int]) -> None:
    granted = Allocation(PromiseState.KEPT, CLASS, throttles={0: 50})
    told = borne_out(granted, Layout((Group(CLASS, Owner.CLASS, {}, throttles=limits),)))
    assert told.state is PromiseState.DEGRADED and told.throttles == limits and "instead of 50" in told.reason.text


def test_a_part_of_a_promise_is_told_as_it_is_too() -> None:
    granted = replace(OWN, state=PromiseState.DEGRADED, reason=NO_ROOM)
    told = borne_out(granted, layout(default=0x70, vm=0x1))
    assert told.masks == {0: CapacityBitmask(1)} and "instead of 3" in told.reason.text


def test_a_group_that_is_gone_keeps_nothing() -> None:
    told = borne_out(OWN, layout(default=0x7F))
    assert told.state is PromiseState.PENDING and not told.masks and told.reason.code is Code.CHANGED_OUTSIDE


@pytest.mark.parametrize("found", [None, TaskPlacement(TaskGroup(""), frozenset({1}), frozenset({1}))])
def test_a_vm_whose_tasks_were_not_put_into_its_group_yet_is_not_kept(found: TaskPlacement | None) -> None:
    told = judge(ASKS, KEPT, found, None)
    assert told.state is PromiseState.DEGRADED and told.reason.code is Code.TASKS_MISSING


def test_a_flavor_that_nobody_knows_yet_is_pending_and_what_the_vm_has_from_before_is_degraded() -> None:
    unknown = FlavorRequest(unknown=NOT_TOLD)
    assert judge(unknown, None, None, None) == Allocation(PromiseState.PENDING, reason=NOT_TOLD)
    kept = judge(unknown, KEPT, placed({1, 2}, {1, 2}), None)
    assert (kept.state, kept.reason, kept.masks) == (PromiseState.DEGRADED, NOT_TOLD, KEPT.masks)


def test_each_pass_goes_on_counting_how_long_the_promise_was_kept() -> None:
    fresh = replace(made_up_host().vms[UUID], request=ASKS, tasks=placed({1, 2}, {1, 2}))
    # All that is there at the end of these passes, ten seconds after each other.
    story: Sequence[Allocation | None] = (None, KEPT, KEPT, replace(KEPT, state=PromiseState.DEGRADED), KEPT)
    before: dict[str, VmRecord] = {}
    for number, given in enumerate(story):
        with patch.object(time, "monotonic", return_value=10.0 * number):
            before = judge_all({UUID: fresh}, {UUID: given} if given else {}, before, Backoff(1.0, 2.0))
    found = before[UUID].time
    assert found is not None
    assert (found.changes, found.promised_until(45.0), found.kept_until(45.0)) == (3, 45.0, 25.0)
    judged = judge_all({UUID: fresh}, {UUID: KEPT}, {}, Backoff(1.0, 2.0))[UUID].time
    assert judged is not None and judged.changes == 0, "a VM that was not there before begins anew"


def counted(record: VmRecord, now: ResctrlState) -> VmRecord:
    return as_counted({UUID: record}, now)[UUID]


def test_a_monitoring_group_that_another_program_removed_counts_no_vm() -> None:
    host = made_up_host()
    record, now = host.vms[UUID], host.resctrl
    assert now is not None and record.tasks is not None
    target, rest = TaskGroup(CLASS, VM), TaskGroup("", VM)
    record = replace(record, tasks=replace(record.tasks, target=target, rest=rest), unmonitored="")
    there = replace(now, monitoring_groups={CLASS: (VM,), "": (VM,)})
    assert counted(record, there) == record
    lost = counted(record, replace(now, monitoring_groups={CLASS: (), "": (VM,)}))
    assert lost.tasks == replace(record.tasks, target=TaskGroup(CLASS)) and "yet to be made" in lost.unmonitored
    lost = counted(replace(record, unmonitored="no RMID is left"), replace(now, monitoring_groups={}))
    assert lost.tasks == replace(record.tasks, target=TaskGroup(CLASS), rest=TaskGroup(""))
    assert lost.unmonitored == "no RMID is left"
    assert counted(replace(record, tasks=None), replace(now, monitoring_groups={})).tasks is None


def test_a_control_group_counts_the_vm_that_has_it_alone() -> None:
    host = made_up_host()
    record, now = host.vms[UUID], host.resctrl
    assert now is not None and record.tasks is not None
    record = replace(record, tasks=replace(record.tasks, target=TaskGroup(VM), rest=None), unmonitored="")
    assert counted(record, replace(now, monitoring_groups={})) == record
