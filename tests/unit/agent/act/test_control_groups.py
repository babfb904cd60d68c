# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.agent.machine import SimulatedResctrl
from vmqos.agent.act import control_groups
from vmqos.agent.act.control_groups import ControlGroups, created
from vmqos.allocation import (
    Allocation,
    CreateGroup,
    Group,
    Layout,
    Plan,
    PromiseState,
    RemoveGroup,
    SetExclusive,
    Split,
    Step,
    WriteMasks,
    WriteThrottles,
    caches,
)
from vmqos.daemon.backoff import Backoff
from vmqos.group_names import Owner, vm_group
from vmqos.resctrl.bitmask import CapacityBitmask

A, B = (f"0000000{number}-0000-4000-8000-000000000000" for number in (1, 2))
WAYS = {0: CapacityBitmask(0x3)}
PENDING = Allocation(PromiseState.PENDING)

WHOLE, CODE, DATA = CapacityBitmask(0x3F), CapacityBitmask(0x3), CapacityBitmask(0x3C)
APART, SAME = Split(CODE, DATA), Split(DATA, DATA)
L2 = caches.l2(5)
MASKS = [
    (WriteMasks("g", {0: WHOLE, 1: CODE}), ["L3:0=3f;1=3"], "give g the L3 ways 0=3f;1=3"),
    (
        WriteMasks("g", {0: WHOLE}, {0: APART}),
        ["L3CODE:0=3", "L3DATA:0=3c"],
        "give g the L3 ways 0=3f (code: L3 ways 0=3; data: L3 ways 0=3c)",
    ),
    (
        WriteMasks("", {0: DATA}, {0: SAME}),
        ["L3CODE:0=3c", "L3DATA:0=3c"],
        "give the default group the L3 ways 0=3c",
    ),
    (
        WriteMasks("g", {0: WHOLE, L2: CODE}),
        ["L3:0=3f", "L2:5=3"],
        "give g the L3 ways 0=3f and the L2 ways 5=3",
    ),
    (
        WriteMasks("g", {0: WHOLE, L2: DATA}, {L2: SAME}),
        ["L3:0=3f", "L2CODE:5=3c", "L2DATA:5=3c"],
        "give g the L3 ways 0=3f and the L2 ways 5=3c",
    ),
]


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
    failure = groups.execute(plan.prepare)
    assert failure is not None and failure.step == plan.prepare[1]
    assert vm_group(A) in resctrl.directories() and vm_group(B) not in resctrl.directories()
    assert groups.blame(plan, {A: PENDING, B: PENDING}, failure, frozenset()), "a pass without that VM gets further"
    assert backoff.waits(A) and not backoff.waits(B)
    assert groups.blame(plan, {A: PENDING, B: PENDING}, failure, {A}), "it failed without it, too"
    assert backoff.waits(A) and backoff.waits(B)
    assert not groups.blame(plan, {A: PENDING, B: PENDING}, failure, {A, B}), "this one was without both already"


def test_a_failure_of_the_default_group_concerns_all_that_miss_something(
    groups: ControlGroups, backoff: Backoff
) -> None:
    plan = Plan((WriteMasks("", {0: CapacityBitmask(0x5)}),), {A: kept(A), B: kept(B)})
    failure = groups.execute(plan.prepare)
    assert failure is not None
    assert groups.blame(plan, {A: PENDING, B: plan.allocations[B]}, failure, frozenset())
    assert backoff.waits(A) and not backoff.waits(B)
    assert not groups.blame(plan, {A: PENDING, B: plan.allocations[B]}, failure, {A})


def test_a_mode_that_the_kernel_refuses_is_not_asked_for_again_until_everything_is_forgotten(
    groups: ControlGroups,
) -> None:
    guard = SetExclusive(vm_group(A), True)
    # A new group has all ways, as the default group does: the kernel refuses to guard it.
    plan = Plan((CreateGroup(vm_group(A)), guard))
    assert groups.execute(plan.prepare) is None
    assert groups.without_refused(plan).prepare == (CreateGroup(vm_group(A)),)
    groups.forget()
    assert groups.without_refused(plan) == plan


def test_a_mode_that_the_kernel_refused_is_remembered_also_where_a_later_step_fails(groups: ControlGroups) -> None:
    guard, group = SetExclusive(vm_group(A), True), CreateGroup(vm_group(A))
    failure = groups.execute([group, guard, RemoveGroup(vm_group(B))])
    assert failure is not None and failure.step == RemoveGroup(vm_group(B))
    assert groups.without_refused(Plan((group, guard))).prepare == (group,)


def test_nothing_is_removed_where_the_plan_turned_out_differently(
    groups: ControlGroups, resctrl: SimulatedResctrl
) -> None:
    assert groups.execute([CreateGroup(vm_group(A))]) is None
    plan = Plan(allocations={B: kept(B)}, retire=(RemoveGroup(vm_group(A)),))
    assert not groups.retire(plan, {B: PENDING})
    assert vm_group(A) in resctrl.directories()
    assert groups.retire(plan, plan.allocations)
    assert vm_group(A) not in resctrl.directories()


def test_a_group_that_can_not_be_removed_is_left_to_a_later_pass(groups: ControlGroups) -> None:
    assert not groups.retire(Plan(retire=(RemoveGroup(vm_group(A)),)), {})


def test_the_groups_that_a_plan_makes_are_known_by_their_steps() -> None:
    assert created(Plan((CreateGroup("a"), WriteMasks("b", WAYS)))) == {"a"}


@pytest.mark.parametrize(("step", "lines", "words"), MASKS)
def test_masks_are_lines_of_schemata_and_words(step: WriteMasks, lines: list[str], words: str) -> None:
    assert control_groups.lines(step) == lines
    assert control_groups.describe(step) == words


def test_a_limit_is_told_as_schemata_has_it() -> None:
    assert (
        control_groups.describe(WriteThrottles("g", {0: 50, 1: 100}))
        == "limit the memory bandwidth of g to MB:0=50;1=100"
    )


def test_what_steps_lead_to_is_foretold() -> None:
    before = Layout((Group("", Owner.DEFAULT, {0: WHOLE}, throttles={0: 100}),))
    steps: list[Step] = [
        CreateGroup("vmqos.shared-code2-data4-mb50"),
        WriteMasks("vmqos.shared-code2-data4-mb50", {0: WHOLE}, {0: APART}),
        WriteThrottles("vmqos.shared-code2-data4-mb50", {0: 50}),
    ]
    default, made = control_groups.predict(before, steps).groups
    assert default == before.groups[0]
    assert (made.owner, made.masks, made.splits, made.throttles) == (Owner.CLASS, {0: WHOLE}, {0: APART}, {0: 50})
