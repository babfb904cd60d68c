# SPDX-License-Identifier: Apache-2.0
"""``hw:cache_vcpus``: the threads of the named vCPUs alone have the ways, and all of the VM is counted."""

from __future__ import annotations

import re
from functools import partial

import libvirt
import pytest

from tests.functional.agent.conftest import WaitForVm, wait_until_told
from tests.functional.agent.test_confined import is_in
from tests.functional.agent.test_lifecycle import all_in, group, tells_all_tasks
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab import vms
from tools.lab.agent import Agent
from tools.lab.vms import RunningVm

pytestmark = pytest.mark.feature("vcpus")

FIRST = {"hw:cache_ways": "2", "hw:cache_vcpus": "0"}
SHARED = {"hw:cache_ways": "3", "hw:cache_policy": "shared", "hw:cache_vcpus": "0"}
NEVER = {"agent": {"full_audit_interval": 3600.0}}
"""What then happens within a test's patience, no full audit has done."""
CLASS = "vmqos.shared-ways3"
NOBODY = {"username": "u", "password": "p", "project_name": "p", "user_domain_name": "d", "project_domain_name": "d"}


def vcpu_threads(vm: RunningVm) -> dict[int, int]:
    """The thread of each vCPU by its number, as its name says."""
    return {int(name.split("/")[0][4:]): tid for tid, name in vm.tasks().items() if re.match(r"CPU \d+/", name)}


def is_apart(tree: Tree, vm: RunningVm, where: str, *vcpus: int) -> bool:
    """Whether these vCPUs' threads alone are in a group, and every other one of the VM is in the default group."""
    tasks, threads = set(vm.tasks()), vcpu_threads(vm)
    chosen = {threads[vcpu] for vcpu in vcpus}
    inside, others = tree.tasks(where), tree.tasks(outside(vm))
    # QEMU's workers come and go.
    return inside & tasks == chosen and (tasks & vm.tasks().keys()) - chosen <= others


def outside(vm: RunningVm) -> str:
    """The group of a VM's other tasks."""
    return f"mon_groups/{group(vm)}"


def has_vcpus(vm: RunningVm, count: int) -> bool:
    return len(vcpu_threads(vm)) == count


def is_told_and_apart(agent: Agent, tree: Tree, vm: RunningVm, state: str, *vcpus: int) -> bool:
    return is_in(agent, vm, state) and is_apart(tree, vm, group(vm), *vcpus)


@pytest.fixture
def quick_agent(make_agent: MakeAgent) -> Agent:
    """An agent that makes no full audits."""
    started = make_agent(NEVER)
    started.start()
    return started


def test_the_named_vcpus_alone_get_the_ways(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    vm = make_vm({**FIRST, "hw:cache_vcpus": "0-1"}, vcpus=3)
    wait_for_vm(
        vm,
        "kept",
        group=group(vm),
        rest_monitoring_group=outside(vm),
        vcpus="0-1",
        vcpus_requested="0-1",
        whole=partial(tells_all_tasks, vm),
    )
    assert is_apart(tree, vm, group(vm), 0, 1)
    assert {mask.bit_count() for mask in tree.masks(group(vm)).values()} == {2}
    assert not list(tree.violations([group(vm)]))


def test_vcpus_of_vms_that_share_are_in_the_class(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm, whole = make_vm(SHARED, vcpus=2), make_vm({key: SHARED[key] for key in list(SHARED)[:2]})
    inside = {one: f"{CLASS}/mon_groups/{group(one)}" for one in (vm, whole)}
    wait_for_vm(vm, "kept", group=CLASS, vcpus="0", monitoring_group=inside[vm], rest_monitoring_group=outside(vm))
    wait_for_vm(whole, "kept", group=CLASS, vcpus=None, monitoring_group=inside[whole])
    assert is_apart(tree, vm, inside[vm], 0)
    assert all_in(tree, inside[whole], whole)


@pytest.mark.feature("vcpus", kept=False)
def test_a_vcpu_that_the_vm_does_not_have_is_named_in_the_reason(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    some = make_vm({**FIRST, "hw:cache_vcpus": "1-3"}, vcpus=2)
    none = make_vm({**FIRST, "hw:cache_vcpus": "5"}, vcpus=2)
    wait_until_told(
        quick_agent,
        wait_for,
        some,
        "degraded",
        reason="no vCPU 2-3: its vCPUs are 0-1",
        whole=lambda told: is_apart(tree, some, group(some), 1),
    )
    wait_until_told(quick_agent, wait_for, none, "pending", reason="no vCPU 5", monitoring_group=outside(none))
    assert group(none) not in tree.groups() and all_in(tree, outside(none), none)


def test_vcpus_that_are_plugged_in_get_the_ways_once_they_are_there(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm({**FIRST, "hw:cache_vcpus": "1-2"}, vcpus=1, max_vcpus=4)
    wait_for(lambda: quick_agent.get(f"/v1/vms/{vm.uuid}")["state"] == "pending", "the VM waiting for its vCPUs")
    for count, state, vcpus in ((2, "degraded", [1]), (3, "kept", [1, 2]), (4, "kept", [1, 2])):
        vm.domain.setVcpusFlags(count, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        wait_for(partial(has_vcpus, vm, count), "the vCPU's thread running")
        wait_for(
            partial(is_told_and_apart, quick_agent, tree, vm, state, *vcpus),
            f"vCPUs {vcpus} alone having the ways",
        )


def test_another_flavor_moves_the_threads_of_other_vcpus_at_once(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm({**FIRST, "hw:cache_vcpus": "0-1"}, vcpus=2)
    wait_for(lambda: quick_agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being kept")
    vm.change_flavor(vms.Flavor("changed", FIRST))
    wait_for(lambda: is_apart(tree, vm, group(vm), 0), "the second vCPU having left the group")
    vm.change_flavor(vms.Flavor("changed", {"hw:cache_ways": "2"}))
    wait_for(lambda: set(vm.tasks()) <= tree.tasks(group(vm)), "all tasks being in the group")
    wait_for(lambda: f"{group(vm)}" not in tree.monitoring_groups(), "nothing of it being left in the default group")


def test_tasks_that_somebody_moved_go_back_to_either_side(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    vm = make_vm(FIRST, vcpus=2)
    wait_for_vm(vm, "kept")
    inside, outside = vcpu_threads(vm)[0], vcpu_threads(vm)[1]
    (tree.root / "tasks").write_text(f"{inside}\n")
    (tree.root / group(vm) / "tasks").write_text(f"{outside}\n{vm.pid}\n".replace("\n", ",", 1))
    wait_for(lambda: is_apart(tree, vm, group(vm), 0), "every task being where it belongs")


def test_a_thread_that_is_born_in_the_group_is_moved_out_of_it(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(FIRST, vcpus=2)
    wait_for(lambda: quick_agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being kept")
    # QEMU's main thread makes the I/O thread: in the group that has the ways, as a vCPU's thread would.
    (tree.root / group(vm) / "tasks").write_text(f"{vm.pid}\n")
    vm.domain.addIOThread(2, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    assert "IO iothread2" in vm.tasks().values()
    wait_for(lambda: is_apart(tree, vm, group(vm), 0), "every task being where it belongs")


@pytest.mark.parametrize("cpu", [0, 1])
def test_the_vm_pays_where_its_chosen_vcpus_can_run(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor, cpu: int
) -> None:
    vm = make_vm(FIRST, vcpus=2, cputune=f'<vcpupin vcpu="0" cpuset="{cpu}"/>')
    wait_until_told(quick_agent, wait_for, vm, "kept", caches=[cpu])
    assert tree.masks()[1 - cpu] == tree.every_way and not tree.masks()[cpu] & tree.masks(group(vm))[cpu]
    vm.domain.pinVcpuFlags(0, (cpu == 1, cpu == 0), libvirt.VIR_DOMAIN_AFFECT_LIVE)
    wait_for(
        lambda: tree.masks()[cpu] == tree.every_way and not tree.masks()[1 - cpu] & tree.masks(group(vm))[1 - cpu],
        "the ways being on the other cache",
    )


@pytest.mark.feature("l2")
@pytest.mark.parametrize("simulator", ["sapphire-rapids"], indirect=True)
def test_only_the_named_vcpus_have_to_be_pinned_for_l2_ways(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    pin = '<vcpupin vcpu="0" cpuset="0"/>'
    vm = make_vm({"hw:l2_cache_ways": "4", "hw:cache_vcpus": "0"}, vcpus=2, cputune=pin)
    told = wait_for_vm(vm, "kept", group=group(vm), rest_monitoring_group=outside(vm))
    assert [int(mask, 16).bit_count() for mask in told["l2_masks"].values()] == [4] and told["masks"] == {}
    assert is_apart(tree, vm, group(vm), 0)
    other = make_vm({"hw:l2_cache_ways": "4", "hw:cache_vcpus": "1"}, vcpus=2, cputune=pin)
    # While it starts, it has no vCPUs yet.
    wait_for_vm(other, "pending", group="", reason="pinned")


@pytest.mark.feature("percent")
def test_a_limit_of_bandwidth_is_for_the_named_vcpus(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm({**FIRST, "hw:mem_bandwidth_percent": "50"}, vcpus=2)
    told = wait_for_vm(vm, "kept", group=group(vm), rest_monitoring_group=outside(vm))
    assert set(told["bandwidth"].values()) == {50} == set(map(int, tree.values("MB", group(vm)).values()))
    assert is_apart(tree, vm, group(vm), 0)


def test_an_agent_that_starts_anew_leaves_everything_where_it_is(
    make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(FIRST, vcpus=2)
    for name in ("one", "two"):
        agent = make_agent(name=name)
        assert agent.run_once() == 0
        assert is_apart(tree, vm, group(vm), 0)
    assert "move" not in agent.log.read_text() and "create" not in agent.log.read_text()


def test_a_vm_whose_flavor_nobody_tells_now_stays_as_it_is(
    make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(FIRST, vcpus=2)
    assert make_agent(name="first").run_once() == 0
    assert is_apart(tree, vm, group(vm), 0)
    vm.change_flavor(vms.Flavor("untold", None))
    agent = make_agent(
        {"nova": {"auth_type": "password", "auth_url": "http://127.0.0.1:9/v3", **NOBODY}}, name="second"
    )
    agent.start()
    wait_for(lambda: "Nova" in agent.get(f"/v1/vms/{vm.uuid}")["reason"], "the VM waiting for Nova")
    passes = agent.get("/v1/health")["passes"]
    wait_for(lambda: agent.get("/v1/health")["passes"] > passes + 12, "full audits")
    assert is_apart(tree, vm, group(vm), 0) and tree.monitoring_groups() == [group(vm)]


@pytest.mark.parametrize("simulator", ["minimal"], indirect=True)
def test_a_vm_whose_other_tasks_can_not_be_counted_says_so(
    make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    for number in range(4):
        (tree.root / "mon_groups" / f"mine{number}").mkdir()
    agent, vm = make_agent(), make_vm(FIRST, vcpus=2)
    agent.start()
    wait_until_told(
        agent,
        wait_for,
        vm,
        "kept",
        rest_monitoring_group=None,
        whole=lambda told: "no RMID is left" in told["unmonitored_reason"],
    )
    tasks, chosen, others = set(vm.tasks()), {vcpu_threads(vm)[0]}, tree.tasks()
    assert tree.tasks(group(vm)) == chosen and (tasks & vm.tasks().keys()) - chosen <= others
