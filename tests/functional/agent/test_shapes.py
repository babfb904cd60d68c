# SPDX-License-Identifier: Apache-2.0
"""Machines of other shapes: many small caches, masks with gaps and empty ones, ways for devices, no local bandwidth.

On a machine of two CPUs two of the simulated caches have a CPU.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.functional.agent.conftest import wait_until_told
from tests.functional.agent.test_cache_vcpus import is_apart
from tests.functional.agent.test_confined import pins
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, EXCLUSIVE_4, SHARED_3, all_in, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab.agent import Agent
from tools.lab.vms import RunningVm

MANY = pytest.mark.parametrize("simulator", ["milan", "milan-2s", "genoa"], indirect=True)
GENOA = pytest.mark.parametrize("simulator", ["genoa"], indirect=True)
OTHERS = pytest.mark.parametrize("simulator", ["sapphire-rapids", "milan", "minimal"], indirect=True)
TWO_CACHES = pytest.mark.parametrize("simulator", ["broadwell", "sapphire-rapids", "milan"], indirect=True)
MPAM = pytest.mark.parametrize("simulator", ["mpam"], indirect=True)
EVERY = 0xFFFF


def told(agent: Agent, vm: RunningVm) -> dict[str, Any]:
    """What the agent knows of a VM, for which it needs no lock on resctrl; nothing of one that it does not know."""
    found: dict[str, dict[str, Any]] = {one["uuid"]: one for one in agent.get("/v1/vms")["vms"]}
    return found.get(vm.uuid, {"state": None, "reason": "", "caches": []})


def is_kept(agent: Agent, tree: Tree, vm: RunningVm, ways: int) -> bool:
    """Whether it has that many ways of its own where it can run, and says so."""
    answer = agent.get(f"/v1/vms/{vm.uuid}")
    masks = {int(cache): int(mask, 16) for cache, mask in answer["masks"].items()}
    held, default = tree.masks(group(vm)), tree.masks()
    return (
        answer["state"] == "kept"
        and bool(masks)
        and sorted(masks) == answer["caches"]
        and all(held[at] == mask and mask.bit_count() == ways and not mask & default[at] for at, mask in masks.items())
    )


def confine_devices(tree: Tree, masks: dict[int, int]) -> None:
    (tree.root / "info/L3/io_alloc_cbm").write_text(";".join(f"{at}={mask:x}" for at, mask in masks.items()) + "\n")


@pytest.mark.feature("ways")
@OTHERS
def test_ways_of_its_own_and_a_cap_are_kept_on_any_machine(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    own, capped = make_vm(EXCLUSIVE_2), make_vm(SHARED_3)
    wait_for(lambda: is_kept(agent, tree, own, 2), "the VM having ways of its own")
    wait_until_told(agent, wait_for, capped, "kept")
    masks, default = tree.masks("vmqos.shared-ways3"), tree.masks()
    for at in told(agent, capped)["caches"]:
        assert masks[at].bit_count() == 3 and not masks[at] & ~default[at]
    assert all_in(tree, group(own), own)
    assert all_in(tree, f"vmqos.shared-ways3/mon_groups/{group(capped)}", capped)


@pytest.mark.feature("vcpus")
@pytest.mark.feature("confined")
@TWO_CACHES
def test_named_vcpus_and_vms_that_are_pinned_are_served_on_any_machine(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    some = make_vm({**EXCLUSIVE_4, "hw:cache_vcpus": "1"}, vcpus=2, cputune=pins("0", vcpus=2))
    other = make_vm(EXCLUSIVE_4, cputune=pins("1"))
    for vm in (some, other):
        wait_for(partial(is_kept, agent, tree, vm, 4), f"{vm.name} being kept")
    wait_until_told(agent, wait_for, some, "kept", rest_monitoring_group=f"mon_groups/{group(some)}")
    (first,), (second,) = told(agent, some)["caches"], told(agent, other)["caches"]
    assert first != second and tree.masks(group(some))[first] == tree.masks(group(other))[second]
    assert is_apart(tree, some, group(some), 1) and all_in(tree, group(other), other)


@pytest.mark.feature("caches")
@pytest.mark.feature("confined")
@pytest.mark.feature("ways")
@MANY
def test_a_vm_pays_on_the_few_of_many_caches_that_it_can_run_on(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    wide, confined = make_vm(EXCLUSIVE_4, cputune=pins("0-1")), make_vm(EXCLUSIVE_2, cputune=pins("0"))
    wait_for(lambda: is_kept(agent, tree, wide, 4), "the VM on two caches being kept")
    wait_for(lambda: is_kept(agent, tree, confined, 2), "the confined VM being kept")
    (first, second), (only,) = told(agent, wide)["caches"], told(agent, confined)["caches"]
    assert only == first
    default = tree.masks()
    assert {default[at].bit_count() for at in default.keys() - {first, second}} == {16}
    assert default[first].bit_count() == 10 and default[second].bit_count() == 12
    assert not tree.masks(group(wide))[first] & tree.masks(group(confined))[first]
    assert all_in(tree, group(wide), wide) and all_in(tree, group(confined), confined)


@pytest.mark.feature("caches")
@pytest.mark.feature("ways")
@MANY
def test_vms_that_share_and_vms_that_ask_for_nothing_are_served_there_too(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    shared, nothing = make_vm(SHARED_3), make_vm()
    wait_until_told(agent, wait_for, shared, "kept")
    wait_until_told(agent, wait_for, nothing, "none")
    caches = told(agent, shared)["caches"]
    assert {tree.masks("vmqos.shared-ways3")[at].bit_count() for at in caches} == {3}
    assert all_in(tree, f"vmqos.shared-ways3/mon_groups/{group(shared)}", shared)


@pytest.mark.feature("gaps")
@MANY
def test_gaps_and_empty_masks_of_others_are_lived_with(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    caches = sorted(tree.masks())
    (tree.root / "other").mkdir()
    (tree.root / "empty").mkdir()
    everywhere = ";".join(f"{at}=9249" for at in caches)
    (tree.root / "other" / "schemata").write_text(f"L3:{everywhere}\n")
    (tree.root / "empty" / "schemata").write_text("L3:" + ";".join(f"{at}=0" for at in caches) + "\n")
    vm = make_vm(EXCLUSIVE_4)
    wait_for(lambda: is_kept(agent, tree, vm, 4), "the VM being kept beside gaps")
    assert all(not tree.masks(group(vm))[at] & 0x9249 for at in told(agent, vm)["caches"])
    assert set(tree.masks("empty").values()) == {0} and set(tree.masks("other").values()) == {0x9249}


@pytest.mark.feature("io_alloc")
@GENOA
def test_ways_that_devices_are_confined_to_are_no_vms_and_their_class_is_gone(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_4, cputune=pins("0-1"))
    wait_for(lambda: is_kept(agent, tree, vm, 4), "the VM being kept")
    assert agent.get("/v1/capabilities")["num_closids"] == 16
    switch = tree.root / "info/L3/io_alloc"
    switch.write_text("1\n")
    # Linux gives devices every way that no group of mode exclusive has: the VM's, too, which has none elsewhere.
    wait_until_told(agent, wait_for, vm, "degraded", reason="I/O fills ways")
    assert agent.get("/v1/capabilities")["num_closids"] == 15
    confine_devices(tree, {at: 0xC000 for at in tree.masks()})
    wait_for(lambda: is_kept(agent, tree, vm, 4), "the VM being kept beside the devices' ways")
    late = make_vm({"hw:cache_ways": "8"})
    wait_for(lambda: is_kept(agent, tree, late, 8), "another VM being kept")
    for one in (vm, late):
        assert not any(tree.masks(group(one))[at] & 0xC000 for at in told(agent, one)["caches"])
    assert {cache["shareable_bits"] for cache in agent.get("/v1/caches")["caches"]} == {"c000"}
    switch.write_text("0\n")
    wait_for(lambda: agent.get("/v1/capabilities")["num_closids"] == 16, "the class being back")


@pytest.mark.feature("io_alloc")
@GENOA
def test_a_vm_moves_off_ways_that_devices_get(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor) -> None:
    (tree.root / "info/L3/io_alloc").write_text("1\n")
    confine_devices(tree, {at: 0x8000 for at in tree.masks()})
    vm = make_vm(EXCLUSIVE_2)
    wait_for(lambda: is_kept(agent, tree, vm, 2), "the VM being kept")
    before = tree.masks(group(vm))
    caches = told(agent, vm)["caches"]
    confine_devices(tree, {at: before[at] for at in caches})
    wait_for(
        lambda: is_kept(agent, tree, vm, 2) and not any(tree.masks(group(vm))[at] & before[at] for at in caches),
        "the VM being elsewhere",
    )


@pytest.mark.feature("io_alloc")
@GENOA
def test_a_class_less_is_a_vm_less(make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor) -> None:
    (tree.root / "info/L3/io_alloc").write_text("1\n")
    confine_devices(tree, {at: 0x8000 for at in tree.masks()})
    for number in range(13):
        (tree.root / f"other{number}").mkdir()
        (tree.root / f"other{number}" / "schemata").write_text(
            "L3:" + ";".join(f"{at}=1" for at in tree.masks()) + "\n"
        )
    agent, first = make_agent(), make_vm(EXCLUSIVE_2)
    agent.start()
    wait_for(lambda: is_kept(agent, tree, first, 2), "the VM having the last class")
    second = make_vm(EXCLUSIVE_2)
    answer = wait_until_told(agent, wait_for, second, "pending", reason="I/O devices have one more")
    assert "CLOSID" in answer["reason"] and not agent.get("/v1/health")["last_error"]
    (tree.root / "info/L3/io_alloc").write_text("0\n")
    wait_for(lambda: is_kept(agent, tree, second, 2), "the VM having the devices' class")


@pytest.mark.feature("smba")
@GENOA
def test_bandwidth_of_slow_memory_is_left_as_it_is(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    (tree.root / "schemata").write_text("SMBA:0=64\n")
    vm = make_vm(EXCLUSIVE_2)
    wait_for(lambda: is_kept(agent, tree, vm, 2), "the VM being kept")
    lines = dict(line.strip().split(":") for line in (tree.root / "schemata").read_text().splitlines())
    # Linux 6.12 puts blanks in front of the shorter numbers.
    assert lines["SMBA"].replace(" ", "").startswith("0=64;1=2048")
    assert agent.get("/v1/capabilities")["bandwidths"]["SMBA"]["unit"] == "1/8 GB/s"


@pytest.mark.feature("ways")
@MPAM
def test_on_arm_ways_are_promised_once_the_operator_says_that_devices_may_fill_them(
    make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm, careful = make_vm(EXCLUSIVE_4), make_agent()
    assert careful.run_once() == 0
    assert tree.groups() == [] and "use_shareable_ways" in careful.log.read_text()
    agent = make_agent({"allocation": {"use_shareable_ways": True}}, name="willing")
    agent.start()
    wait_for(lambda: is_kept(agent, tree, vm, 4), "the VM being kept")
    assert all_in(tree, group(vm), vm)


@pytest.mark.feature("total")
@MPAM
def test_on_arm_there_is_no_local_bandwidth_and_the_total_is_told(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm()

    def is_counted() -> bool:
        # The first sweep may find the VM before its group.
        counted = agent.get("/v1/telemetry")["vms"].get(vm.uuid, {}).get("totals", {})
        return counted.get("mbm_total_bytes") is not None and counted.get("llc_occupancy") is not None

    wait_for(is_counted, "the VM being counted")
    assert agent.get("/v1/telemetry")["vms"][vm.uuid]["totals"]["mbm_local_bytes"] is None


@pytest.mark.feature("percent")
@MPAM
def test_on_arm_bandwidth_is_in_steps_of_one_per_cent(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm({"hw:mem_bandwidth_percent": "41"})
    answer = wait_until_told(agent, wait_for, vm, "kept")
    assert set(answer["bandwidth"].values()) == {41}
    limits = tree.values("MB", "vmqos.shared-mb41")
    assert {limits[at] for at in answer["caches"]} == {"41"}
    assert all_in(tree, f"vmqos.shared-mb41/mon_groups/{group(vm)}", vm)
