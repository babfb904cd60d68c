# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from vmqos.agent.monitoring import Create, Move, Remove, plan
from vmqos.agent.view import ResctrlView
from vmqos.allocation import Group, Layout, owner_of
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities, Monitoring

ALL = CapacityBitmask.run(0, 11)
L3 = CacheResource("L3", 4, ALL, 1, CapacityBitmask(), False, (0,))


def view(*groups: str, rmids: int | None = 32, monitoring: dict[str, tuple[str, ...]] | None = None) -> ResctrlView:
    found = None if rmids is None else Monitoring(rmids, ("llc_occupancy",), 65536)
    layout = Layout(tuple(Group(name, owner_of(name), {0: ALL}) for name in ("", *groups)))
    return ResctrlView((1, 1), Capabilities({"L3": L3}, {}, found), layout, {}, monitoring or {})


def test_a_vm_without_a_group_of_its_own_gets_a_monitoring_group() -> None:
    result = plan(view(), [("a", ""), ("b", "vmqos.shared-ways2")])
    assert result.steps == (Create("vmqos.a", ""), Create("vmqos.b", "vmqos.shared-ways2"))
    assert not result.stale and not result.without


def test_a_vm_that_changes_its_class_keeps_its_counters() -> None:
    now = view("vmqos.shared-ways2", monitoring={"": ("vmqos.a",)})
    assert plan(now, [("a", "vmqos.shared-ways2")]).steps == (Move("vmqos.a", "", "vmqos.shared-ways2"),)


def test_monitoring_groups_of_vms_that_are_gone_are_removed_and_foreign_ones_are_not() -> None:
    now = view(monitoring={"": ("vmqos.gone", "mine"), "foreign": ("other",)})
    result = plan(now, [])
    assert result.stale == (Remove("vmqos.gone", ""),)
    assert not result.steps


def test_an_rmid_is_kept_for_each_group_that_can_still_be_made() -> None:
    # Six RMIDs: one is the default group's, three are kept for the three CLOSIDs that are left.
    result = plan(view(rmids=6), [("a", ""), ("b", ""), ("c", "")])
    assert result.steps == (Create("vmqos.a", ""), Create("vmqos.b", ""))
    assert set(result.without) == {"c"} and "6" in result.without["c"]


def test_who_came_first_is_monitored_first_and_keeps_it() -> None:
    now = view(rmids=5, monitoring={"": ("vmqos.late",)})
    result = plan(now, [("early", ""), ("late", "")])
    assert not result.steps and set(result.without) == {"early"}


def test_a_machine_without_monitoring_says_so() -> None:
    result = plan(view(rmids=None), [("a", "")])
    assert not result.steps and "no monitoring" in result.without["a"]


def test_an_unchanged_world_needs_nothing() -> None:
    now = view(monitoring={"": ("vmqos.a",)})
    result = plan(now, [("a", "")])
    assert not result.steps and not result.stale and not result.without
