# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.agent.act.monitoring_plan import Create, Move, Remove, give_up, plan
from vmqos.allocation import Group, Layout
from vmqos.group_names import owner_of
from vmqos.host.resctrl_state import ResctrlState
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities, Monitoring

ALL = CapacityBitmask.run(0, 11)
A, B, C = (f"{digit * 8}-1111-4111-8111-111111111111" for digit in "abc")

L3 = CacheResource("L3", 4, ALL, 1, CapacityBitmask(), False, (0,))


def view(*groups: str, rmids: int | None = 32, monitoring: dict[str, tuple[str, ...]] | None = None) -> ResctrlState:
    found = None if rmids is None else Monitoring(rmids, ("llc_occupancy",), 65536)
    layout = Layout(tuple(Group(name, owner_of(name), {0: ALL}) for name in ("", *groups)))
    return ResctrlState((1, 1), Capabilities({"L3": L3}, {}, found), layout, {}, monitoring or {})


def test_a_vm_without_a_group_of_its_own_gets_a_monitoring_group() -> None:
    result = plan(view(), [(A, ""), (B, "vmqos.shared-ways2")])
    assert result.steps == (Create(f"vmqos.{A}", ""), Create(f"vmqos.{B}", "vmqos.shared-ways2"))
    assert not result.stale and not result.without


def test_a_vm_that_changes_its_class_keeps_its_counters() -> None:
    now = view("vmqos.shared-ways2", monitoring={"": (f"vmqos.{A}",)})
    assert plan(now, [(A, "vmqos.shared-ways2")]).steps == (Move(f"vmqos.{A}", "", "vmqos.shared-ways2"),)


def test_a_vm_in_two_control_groups_is_monitored_in_both() -> None:
    wanted = [(A, "vmqos.shared-ways2"), (A, ""), (B, "")]
    result = plan(view("vmqos.shared-ways2"), wanted)
    both = (Create(f"vmqos.{A}", "vmqos.shared-ways2"), Create(f"vmqos.{A}", ""))
    assert result.steps == (*both, Create(f"vmqos.{B}", ""))
    there = view("vmqos.shared-ways2", monitoring={"": (f"vmqos.{A}", f"vmqos.{B}"), both[0].control: (both[0].name,)})
    result = plan(there, wanted)
    assert not result.steps and not result.stale and not result.without
    assert plan(there, [(A, "vmqos.shared-ways2"), (B, "")]).stale == (Remove(f"vmqos.{A}", ""),)


def test_a_vm_that_comes_to_be_in_two_control_groups_keeps_the_counters_that_it_has() -> None:
    now = view("vmqos.shared-ways2", monitoring={"": (f"vmqos.{A}",)})
    result = plan(now, [(A, "vmqos.shared-ways2"), (A, "")])
    assert result.steps == (Create(f"vmqos.{A}", "vmqos.shared-ways2"),) and not result.stale


def test_monitoring_groups_of_vms_that_are_gone_are_removed_and_foreign_ones_are_not() -> None:
    now = view("foreign", monitoring={"": (f"vmqos.{A}", "mine", "vmqos.no-uuid"), "foreign": ("other", f"vmqos.{B}")})
    result = plan(now, [])
    assert result.stale == (Remove(f"vmqos.{A}", ""),)
    assert not result.steps


def test_an_rmid_is_kept_for_each_group_that_can_still_be_made() -> None:
    # Six RMIDs: one is the default group's, three are kept for the three CLOSIDs that are left.
    result = plan(view(rmids=6), [(A, ""), (B, ""), (C, "")])
    assert result.steps == (Create(f"vmqos.{A}", ""), Create(f"vmqos.{B}", ""))
    assert set(result.without) == {C} and "6" in result.without[C]


def test_who_came_first_is_monitored_first_and_keeps_it() -> None:
    now = view(rmids=5, monitoring={"": (f"vmqos.{B}",)})
    result = plan(now, [(A, ""), (B, "")])
    assert not result.steps and set(result.without) == {A}


def test_a_machine_without_monitoring_says_so() -> None:
    result = plan(view(rmids=None), [(A, "")])
    assert not result.steps and "no monitoring" in result.without[A]


def test_an_unchanged_world_needs_nothing() -> None:
    now = view(monitoring={"": (f"vmqos.{A}",)})
    result = plan(now, [(A, "")])
    assert not result.steps and not result.stale and not result.without


def test_a_group_that_was_made_anew_where_no_rename_is_possible_leaves_the_old_one_to_be_removed() -> None:
    now = view("vmqos.shared-ways2", monitoring={"": (f"vmqos.{A}",), "vmqos.shared-ways2": (f"vmqos.{A}",)})
    result = plan(now, [(A, "vmqos.shared-ways2")])
    assert not result.steps and result.stale == (Remove(f"vmqos.{A}", ""),)


OURS = {"": tuple(f"vmqos.{uuid}" for uuid in (A, B, C))}


@pytest.mark.parametrize(
    ("rmids", "created", "given_up"),
    [
        (4, ["vmqos.x"], [(A, "vmqos.x")]),
        (4, ["vmqos.x", "vmqos.y"], [(A, "vmqos.x"), (C, "vmqos.y")]),
        (5, ["vmqos.x", "vmqos.y"], [(A, "vmqos.y")]),
        (5, ["vmqos.x"], []),
        (3, ["vmqos.x"], [(A, "vmqos.x")]),
        (4, [], []),
        (None, ["vmqos.x"], []),
    ],
)
def test_as_many_graphs_are_given_up_as_control_groups_lack_rmids(
    rmids: int | None, created: list[str], given_up: list[tuple[str, str]]
) -> None:
    now = view(rmids=rmids, monitoring=OURS)
    assert now.lacks_rmids(len(created)) == bool(given_up)
    found = give_up(now, created, [A, C, B])
    assert found == tuple((Remove(f"vmqos.{uuid}", ""), group) for uuid, group in given_up)


def test_a_vm_without_a_graph_and_a_foreign_group_have_none_to_give_up() -> None:
    now = view("foreign", rmids=5, monitoring={"": ("mine", f"vmqos.{B}"), "foreign": (f"vmqos.{A}",)})
    assert give_up(now, ["vmqos.x"], [A, B]) == ((Remove(f"vmqos.{B}", ""), "vmqos.x"),)


def test_what_was_given_up_is_not_made_again_for_as_long_as_others_hold_what_is_kept_free() -> None:
    wanted = [(A, ""), (B, ""), (C, "")]
    # Three groups can still be made; the RMIDs for them are gone, but for the one that was given up.
    left = view(rmids=8, monitoring={"": (f"vmqos.{A}", f"vmqos.{B}", "x", "y", "z")})
    assert not give_up(left, ["vmqos.x"], [C, B, A]) and not plan(left, wanted).steps
    made = view("vmqos.x", rmids=8, monitoring=left.monitoring_groups)  # type: ignore[arg-type]
    assert not plan(made, wanted).steps and set(plan(made, wanted).without) == {C}
