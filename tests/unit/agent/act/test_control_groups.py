# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.agent.machine import SimulatedResctrl
from vmqos.agent.act.control_groups import ControlGroups, created
from vmqos.allocation import Allocation, CreateGroup, Plan, PromiseState, RemoveGroup, SetExclusive, WriteMasks
from vmqos.daemon.backoff import Backoff
from vmqos.group_names import vm_group
from vmqos.resctrl.bitmask import CapacityBitmask

A, B = (f"0000000{number}-0000-4000-8000-000000000000" for number in (1, 2))
WAYS = {0: CapacityBitmask(0x3)}
PENDING = Allocation(PromiseState.PENDING)


def kept(uuid: str) -> Allocation:
    return Allocation(PromiseState.KEPT, vm_group(uuid), WAYS)


@pytest.fixture
def resctrl(tmp_path: Path) -> SimulatedResctrl:
    root = tmp_path / "resctrl"
    root.mkdir()
    return SimulatedResctrl(root, tmp_path / "cpu")


@pytest.fixture
def backoff() -> Backoff:
    return Backoff(1.0, 60.0)


@pytest.fixture
def groups(resctrl: SimulatedResctrl, backoff: Backoff) -> ControlGroups:
    return ControlGroups(resctrl, backoff)


def test_a_step_that_the_kernel_refuses_ends_the_plan_and_is_the_vms_failure(
    groups: ControlGroups, resctrl: SimulatedResctrl, backoff: Backoff
) -> None:
    plan = Plan(
        (CreateGroup(vm_group(A)), WriteMasks(vm_group(A), {0: CapacityBitmask(0x5)}), CreateGroup(vm_group(B))),
        {A: kept(A), B: kept(B)},
    )
    failure = groups.prepare(plan)
    assert failure is not None and failure.step == plan.prepare[1]
    assert vm_group(A) in resctrl.directories() and vm_group(B) not in resctrl.directories()
    assert groups.blame(plan, {A: PENDING, B: PENDING}, failure), "a pass without that VM gets further"
    assert backoff.waits(A) and not backoff.waits(B)


def test_a_failure_of_the_default_group_concerns_all_that_miss_something(
    groups: ControlGroups, backoff: Backoff
) -> None:
    plan = Plan((WriteMasks("", {0: CapacityBitmask(0x5)}),), {A: kept(A), B: kept(B)})
    failure = groups.prepare(plan)
    assert failure is not None
    assert not groups.blame(plan, {A: PENDING, B: plan.allocations[B]}, failure)
    assert backoff.waits(A) and not backoff.waits(B)


def test_a_mode_that_the_kernel_refuses_is_not_asked_for_again_until_everything_is_forgotten(
    groups: ControlGroups,
) -> None:
    guard = SetExclusive(vm_group(A), True)
    # A new group has all ways, as the default group does: the kernel refuses to guard it.
    plan = Plan((CreateGroup(vm_group(A)), guard))
    assert groups.prepare(plan) is None
    assert groups.without_refused(plan).prepare == (CreateGroup(vm_group(A)),)
    groups.forget()
    assert groups.without_refused(plan) == plan


def test_nothing_is_removed_where_the_plan_turned_out_differently(
    groups: ControlGroups, resctrl: SimulatedResctrl
) -> None:
    assert groups.prepare(Plan((CreateGroup(vm_group(A)),))) is None
    plan = Plan(allocations={B: kept(B)}, retire=(RemoveGroup(vm_group(A)),))
    assert not groups.retire(plan, {B: PENDING})
    assert vm_group(A) in resctrl.directories()
    assert groups.retire(plan, plan.allocations)
    assert vm_group(A) not in resctrl.directories()


def test_a_group_that_can_not_be_removed_is_left_to_a_later_pass(groups: ControlGroups) -> None:
    assert not groups.retire(Plan(retire=(RemoveGroup(vm_group(A)),)), {})


def test_the_groups_that_a_plan_makes_are_known_by_their_steps() -> None:
    assert created(Plan((CreateGroup("a"), WriteMasks("b", WAYS)))) == {"a"}
