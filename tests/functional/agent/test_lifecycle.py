# SPDX-License-Identifier: Apache-2.0
"""A VM's tasks are in its group from its start to its end, whatever happens to it between."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import libvirt
import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeVm, WaitFor
from tools.lab import vms
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.vms import RunningVm

EXCLUSIVE_4 = {"hw:cache_ways": "4"}
EXCLUSIVE_2 = {"hw:cache_ways": "2"}
SHARED_3 = {"hw:cache_ways": "3", "hw:cache_policy": "shared"}


def group(vm: RunningVm) -> str:
    return f"vmqos.{vm.uuid}"


def all_in(tree: Tree, directory: str, vm: RunningVm) -> bool:
    tasks, there = set(vm.tasks()), tree.tasks(directory)
    # QEMU's workers come and go.
    return bool(tasks) and tasks & vm.tasks().keys() <= there


def tells_all_tasks(vm: RunningVm, told: dict[str, Any]) -> bool:
    """Whether the agent's answer has all tasks of the VM, each in its place.

    A VM that the agent saw while it was being started is kept with the tasks of then; the others are born there.
    """
    return told["tasks"] == told["tasks_in_place"] == len(told["task_list"]) >= len(vm.tasks()) and all(
        task["in_place"] for task in told["task_list"]
    )


@pytest.mark.feature("ways")
@pytest.mark.parametrize("virt_type", ["fastest", "emulated"], indirect=True)
def test_an_exclusive_vm_gets_its_ways_for_all_its_tasks(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(EXCLUSIVE_4, vcpus=2)
    told = wait_for_vm(vm, "kept", whole=partial(tells_all_tasks, vm))
    assert {mask.bit_count() for mask in tree.masks(group(vm)).values()} == {4}
    assert not list(tree.violations([group(vm)]))
    assert all_in(tree, group(vm), vm)
    assert {int(cache): int(mask, 16) for cache, mask in told["masks"].items()} == tree.masks(group(vm))


@pytest.mark.feature("ways")
def test_sharing_vms_are_in_one_class_and_monitored_each(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    both = [make_vm(SHARED_3) for _ in range(2)]
    for vm in both:
        wait_for_vm(vm, "kept", group="vmqos.shared-ways3")
    assert {mask.bit_count() for mask in tree.masks("vmqos.shared-ways3").values()} == {3}
    assert all(tree.masks("vmqos.shared-ways3")[cache] & ~mask == 0 for cache, mask in tree.masks().items())
    assert tree.monitoring_groups("vmqos.shared-ways3") == sorted(group(vm) for vm in both)
    for vm in both:
        assert all_in(tree, f"vmqos.shared-ways3/mon_groups/{group(vm)}", vm)


def test_a_vm_that_asks_for_nothing_is_monitored_in_the_default_group(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm()
    told = wait_for_vm(vm, "none", whole=lambda told: all_in(tree, f"mon_groups/{group(vm)}", vm))
    assert told["monitoring_group"] == f"mon_groups/{group(vm)}"
    assert all_in(tree, f"mon_groups/{group(vm)}", vm)
    assert tree.groups() == [] and set(tree.masks().values()) == {tree.every_way}


def test_a_stopped_vm_leaves_a_clean_host(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    vms_running = [make_vm(EXCLUSIVE_4), make_vm(SHARED_3), make_vm()]
    for vm, state in zip(vms_running, ("kept", "kept", "none"), strict=True):
        wait_for_vm(vm, state)
    for vm in vms_running:
        vm.domain.destroy()
    gone = set(map(group, vms_running))
    wait_for(lambda: not gone & {*tree.groups(), *tree.monitoring_groups()}, "the VMs' groups being gone")
    wait_for(lambda: tree.groups() == [], "the class being gone")
    wait_for(lambda: set(tree.masks().values()) == {tree.every_way}, "the default group having all ways again")


def test_a_paused_vm_keeps_its_ways(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    before = wait_for_vm(vm, "kept")
    vm.domain.suspend()
    passes = agent.get("/v1/health")["passes"]
    wait_for(lambda: agent.get("/v1/health")["passes"] >= passes + 5, "some passes")
    assert wait_for_vm(vm, "kept")["masks"] == before["masks"]
    vm.domain.resume()
    assert all_in(tree, group(vm), vm)


def test_a_crashed_qemu_gives_its_ways_back(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_4)
    wait_for_vm(vm, "kept")
    os.kill(vm.pid, signal.SIGKILL)
    wait_for(lambda: tree.groups() == [], "the group being gone")
    wait_for(lambda: set(tree.masks().values()) == {tree.every_way}, "the default group having all ways again")


@pytest.mark.feature("ways")
def test_hot_plugged_vcpus_are_in_the_group(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm,
                                            wait_for: WaitFor) -> None:  # fmt: skip
    vm = make_vm(EXCLUSIVE_2, vcpus=1, max_vcpus=3)
    wait_for_vm(vm, "kept")
    vm.domain.setVcpusFlags(3, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    wait_for(lambda: sum(name.startswith("CPU ") for name in vm.tasks().values()) == 3, "the vCPU threads running")
    wait_for(lambda: all_in(tree, group(vm), vm), "all threads being in the group")


def test_a_thread_that_somebody_moved_away_is_brought_back(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_2, vcpus=2)
    wait_for_vm(vm, "kept")
    stray = vm.pid
    # The kernel has moved it once this returns.
    (tree.root / "tasks").write_text(f"{stray}\n")
    wait_for(lambda: stray in tree.tasks(group(vm)), "the thread being back")


def test_a_renamed_vm_keeps_its_ways(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    vm = make_vm(EXCLUSIVE_2)
    before = wait_for_vm(vm, "kept")
    vm.domain.destroy()
    vm.domain.rename(f"{vm.name}-renamed")
    vm.domain.create()
    after = wait_for_vm(vm, "kept", name=f"{vm.name}-renamed")
    assert after["masks"].keys() == before["masks"].keys()
    assert not list(tree.violations([group(vm)]))


@pytest.mark.feature("ways")
def test_a_live_change_of_the_metadata_resizes_the_promise(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept", ways_requested=2)
    for ways in (4, 1):
        vm.change_flavor(vms.Flavor("changed", {"hw:cache_ways": str(ways)}))
        told = wait_for_vm(vm, "kept", ways_requested=ways)
        assert {int(mask, 16).bit_count() for mask in told["masks"].values()} == {ways}
        assert {mask.bit_count() for mask in tree.masks(group(vm)).values()} == {ways}
        assert all_in(tree, group(vm), vm)


def test_a_resize_as_nova_does_it_counts_from_the_next_start(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, libvirt_host: PrivateLibvirt, virt_type: str
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept", ways_requested=2)
    vm.domain.destroy()
    connection = libvirt_host.connect()
    resized = vms.Vm(vm.name, vms.Flavor("bigger", EXCLUSIVE_4), uuid=vm.uuid, virt_type=virt_type)
    vms.start(connection, resized)
    told = wait_for_vm(vm, "kept", ways_requested=4)
    assert told["flavor"] == "bigger"
    assert {mask.bit_count() for mask in tree.masks(group(vm)).values()} == {4}
    connection.close()


@pytest.mark.feature("ways")
def test_a_vm_that_changes_from_exclusive_to_shared_and_back_is_never_without_a_group(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept", policy="exclusive")
    vm.change_flavor(vms.Flavor("changed", SHARED_3))
    wait_for_vm(vm, "kept", policy="shared", group="vmqos.shared-ways3")
    wait_for(lambda: tree.groups() == ["vmqos.shared-ways3"], "the exclusive group being gone")
    assert all_in(tree, f"vmqos.shared-ways3/mon_groups/{group(vm)}", vm)
    vm.change_flavor(vms.Flavor("changed", EXCLUSIVE_4))
    wait_for_vm(vm, "kept", policy="exclusive", group=group(vm))
    wait_for(lambda: tree.groups() == [group(vm)], "the class being gone")
    assert all_in(tree, group(vm), vm)


@pytest.mark.feature("ways")
@pytest.mark.parametrize("simulator", ["broadwell"], indirect=True)
def test_thirty_vms_that_start_at_once_are_all_served(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    flavors = [{"hw:cache_ways": "1"}] * 8 + [SHARED_3] * 10 + [{}] * 12
    started = [make_vm(specs) for specs in flavors]

    def all_served() -> bool:
        told = {vm["uuid"]: vm for vm in agent.get("/v1/vms")["vms"]}
        return len(told) == 30 and all(
            told[vm.uuid]["state"] in ("kept", "none")
            and told[vm.uuid]["tasks"] == told[vm.uuid]["tasks_in_place"] > 0
            and not told[vm.uuid]["unmonitored_reason"]
            for vm in started
        )

    wait_for(all_served, "all 30 VMs being served", 180)
    exclusive = [group(vm) for vm in started[:8]]
    assert not list(tree.violations(exclusive))
    for vm in started[:8]:
        assert all_in(tree, group(vm), vm)
    for vm in started[8:18]:
        assert all_in(tree, f"vmqos.shared-ways3/mon_groups/{group(vm)}", vm)
    for vm in started[18:]:
        assert all_in(tree, f"mon_groups/{group(vm)}", vm)


@pytest.mark.feature("confined")
def test_a_vm_confined_to_one_cache_pays_on_that_cache_alone(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    caches = agent.get("/v1/caches")["caches"]
    assert len(caches) == 2 and all(cache["cpus"] for cache in caches), "this needs a machine of two caches"
    first = make_vm(EXCLUSIVE_4, cpuset=caches[0]["cpus"])
    second = make_vm({"hw:cache_ways": "6"}, cpuset=caches[1]["cpus"])
    assert wait_for_vm(first, "kept", caches=[caches[0]["id"]])["masks"].keys() == {str(caches[0]["id"])}
    assert wait_for_vm(second, "kept", caches=[caches[1]["id"]])["masks"].keys() == {str(caches[1]["id"])}
    assert tree.masks(group(first))[0] & tree.masks()[0] == 0
    assert tree.masks(group(second))[1] & tree.masks()[1] == 0
