# SPDX-License-Identifier: Apache-2.0
"""Limits of memory bandwidth, on machines that throttle by per cent, in MB/s, in 1/8 GB/s, and not at all."""

from __future__ import annotations

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, all_in, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeVm
from tools.lab.agent import Agent

HALF = {"hw:mem_bandwidth_percent": "50"}
MBPS = {"hw:mem_bandwidth_mbps": "2000"}

CASCADE_LAKE = pytest.mark.parametrize("simulator", ["cascade-lake"], indirect=True)
BY_PER_CENT = pytest.mark.parametrize("simulator", ["cascade-lake", "sapphire-rapids"], indirect=True)
IN_MBPS = pytest.mark.parametrize(
    "simulator", [("cascade-lake", "mba_MBps"), ("sapphire-rapids", "mba_MBps")], indirect=True
)
AMD = pytest.mark.parametrize("simulator", ["milan", "genoa"], indirect=True)
BROADWELL = pytest.mark.parametrize("simulator", ["broadwell"], indirect=True)


@pytest.mark.feature("percent")
@BY_PER_CENT
def test_per_cent_are_a_class_that_has_the_default_groups_ways(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    both = [make_vm(HALF) for _ in range(2)]
    for vm in both:
        told = wait_for_vm(vm, "kept", group="vmqos.shared-mb50")
        assert told["bandwidth"] == {str(cache): 50 for cache in told["caches"]} and told["bandwidth_unit"] == "%"
        assert all_in(tree, f"vmqos.shared-mb50/mon_groups/{group(vm)}", vm)
    limits = tree.values("MB", "vmqos.shared-mb50")
    assert {cache for cache, limit in limits.items() if limit == "50"} == set(told["caches"])
    assert set(limits.values()) <= {"50", "100"}
    third = make_vm(EXCLUSIVE_2)
    wait_for_vm(third, "kept")
    assert tree.masks("vmqos.shared-mb50") == tree.masks()
    assert not list(tree.violations([group(third)]))


@pytest.mark.feature("percent")
@CASCADE_LAKE
def test_per_cent_beside_ways_are_rounded_up_and_the_real_value_is_told(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm({**EXCLUSIVE_2, "hw:mem_bandwidth_percent": "41"})
    told = wait_for_vm(vm, "kept", group=group(vm))
    assert set(told["bandwidth"].values()) == {50} and told["bandwidth_requested"] == 41
    assert "gets 50 % of the memory bandwidth for the 41 % asked for" in told["reason"]
    assert "50" in tree.values("MB", group(vm)).values()


@pytest.mark.feature("mba_MBps", kept=False)
@CASCADE_LAKE
def test_mbps_are_pending_where_resctrl_takes_per_cent_and_the_command_is_told(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    needs = "needs resctrl to be mounted with mba_MBps: 'sudo vmqos doctor' tells how"
    wait_for_vm(make_vm(MBPS), "pending", group="", reason=needs)
    told = wait_for_vm(make_vm({**EXCLUSIVE_2, **MBPS}), "degraded", reason=needs)
    assert {int(mask, 16).bit_count() for mask in told["masks"].values()} == {2} and told["bandwidth"] == {}


@pytest.mark.feature("mba_MBps")
@pytest.mark.feature("percent", kept=False)
@IN_MBPS
def test_mbps_are_a_group_of_each_vms_own(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    for vm in [make_vm(MBPS) for _ in range(2)]:
        told = wait_for_vm(vm, "kept", group=group(vm))
        assert set(told["bandwidth"].values()) == {2000} and told["bandwidth_unit"] == "MB/s"
        assert "2000" in tree.values("MB", group(vm)).values() and all_in(tree, group(vm), vm)
        assert tree.masks(group(vm)) == tree.masks()
    wait_for_vm(make_vm(HALF), "pending", reason="without mba_MBps")


@pytest.mark.feature("gbps")
@pytest.mark.feature("percent", kept=False)
@AMD
def test_mbps_are_rounded_up_to_steps_of_1_8_gbps_on_amd(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm({"hw:mem_bandwidth_mbps": "1001"})
    told = wait_for_vm(vm, "kept", group=group(vm))
    assert told["bandwidth"] == {str(cache): 1125 for cache in told["caches"]}
    limits = tree.values("MB", group(vm))
    assert {cache for cache, limit in limits.items() if limit == "9"} == set(told["caches"])
    assert set(limits.values()) <= {"9", "2048"}
    wait_for_vm(make_vm(HALF), "pending", group="", reason="1/8 GB/s")


@pytest.mark.feature("percent", kept=False)
@pytest.mark.feature("mba_MBps", kept=False)
@pytest.mark.feature("ways")
@BROADWELL
def test_a_machine_without_mba_says_so_and_gives_the_ways(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    for specs, state in ((HALF, "pending"), (MBPS, "pending"), ({**EXCLUSIVE_2, **HALF}, "degraded")):
        told = wait_for_vm(make_vm(specs), state, reason="memory bandwidth can't be throttled")
    assert {int(mask, 16).bit_count() for mask in told["masks"].values()} == {2}


@pytest.mark.feature("percent")
@CASCADE_LAKE
def test_an_agent_that_starts_anew_changes_nothing(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vms = [make_vm(HALF), make_vm({**EXCLUSIVE_2, **HALF})]
    before = [wait_for_vm(vm, "kept")["group"] for vm in vms]
    limits = {name: tree.values("MB", name) for name in tree.groups()}
    agent.stop()
    agent.start()
    assert [wait_for_vm(vm, "kept")["group"] for vm in vms] == before
    assert {name: tree.values("MB", name) for name in tree.groups()} == limits
