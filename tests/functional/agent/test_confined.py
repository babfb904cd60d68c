# SPDX-License-Identifier: Apache-2.0
"""A VM pays where its tasks can run and nowhere else, also once somebody pins it elsewhere (rule 11)."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import libvirt
import pytest

from tests.functional.agent.test_lifecycle import EXCLUSIVE_4, all_in, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab.agent import Agent
from tools.lab.vms import RunningVm

pytestmark = pytest.mark.feature("confined")

NEVER = {"agent": {"full_audit_interval": 3600.0}}
"""Nothing is found but what libvirt tells, and what the quick audits see."""

DEFAULT_WAYS_MIN = 2
"""Ways that the host keeps where nothing else is configured."""

AT_ONCE = 60.0
"""Seconds in which a promise follows its VM on any machine; a full audit would not come for an hour."""


@pytest.fixture
def quick_agent(make_agent: MakeAgent) -> Agent:
    """An agent that makes no full audits."""
    started = make_agent(NEVER)
    started.start()
    return started


def pins(cpuset: str, vcpus: int = 1) -> str:
    """The ``<cputune>`` of a VM that Nova pinned: vCPUs, emulator and I/O thread."""
    each = "".join(f'<vcpupin vcpu="{vcpu}" cpuset="{cpuset}"/>' for vcpu in range(vcpus))
    return f'{each}<emulatorpin cpuset="{cpuset}"/><iothreadpin iothread="1" cpuset="{cpuset}"/>'


def two(cpus: str) -> tuple[bool, bool]:
    """A set of this machine's two CPUs as libvirt's bindings want it."""
    return ("0" in cpus, "1" in cpus)


def pin_everything(vm: RunningVm, cpus: str, vcpus: int = 1) -> None:
    """What ``virsh vcpupin``, ``emulatorpin`` and ``iothreadpin`` do."""
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE
    vm.domain.pinEmulator(two(cpus), live)
    vm.domain.pinIOThread(1, two(cpus), live)
    for vcpu in range(vcpus):
        vm.domain.pinVcpuFlags(vcpu, two(cpus), live)


def is_in(agent: Agent, vm: RunningVm, state: str) -> bool:
    """Whether the agent says that the VM is in this state."""
    return bool(agent.get(f"/v1/vms/{vm.uuid}")["state"] == state)


def keeps(agent: Agent, tree: Tree, vm: RunningVm, *caches: int) -> bool:
    """Whether the VM has its 4 ways on these caches, alone, and none on the others."""
    told = agent.get(f"/v1/vms/{vm.uuid}")
    masks, default = tree.masks(group(vm)), tree.masks()
    return (
        told["state"] == "kept"
        and told["caches"] == sorted(caches)
        and {int(cache): int(mask, 16) for cache, mask in told["masks"].items()} == {at: masks[at] for at in caches}
        and all(masks[at].bit_count() == 4 and not masks[at] & default[at] for at in caches)
        and all(default[at] == tree.every_way for at in masks.keys() - set(caches))
    )


def test_a_vm_all_of_whose_tasks_are_pinned_pays_where_they_are_pinned(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_4, cputune=pins("0"))
    wait_for(lambda: keeps(quick_agent, tree, vm, 0), "the VM having its ways on the first cache alone")


def test_a_vm_whose_vcpus_alone_are_pinned_pays_where_its_other_tasks_can_run_too(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_4, cputune='<vcpupin vcpu="0" cpuset="0"/>')
    wait_for(lambda: keeps(quick_agent, tree, vm, 0, 1), "the VM having its ways on both caches")


def test_a_vm_that_is_bound_to_memory_alone_pays_on_every_cache_that_it_can_run_on(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_4, numatune='<memory mode="strict" nodeset="0"/>')
    wait_for(lambda: keeps(quick_agent, tree, vm, 0, 1), "the VM having its ways on both caches")


def test_vms_on_two_sockets_have_the_same_ways_each_on_its_own(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    cpus = {cache["id"]: cache["cpus"] for cache in quick_agent.get("/v1/caches")["caches"]}
    both = [make_vm(EXCLUSIVE_4, cputune=pins(cpus[cache])) for cache in (0, 1)]
    for cache, vm in enumerate(both):
        wait_for(partial(keeps_on, quick_agent, tree, vm, cache), f"VM {cache} having its ways")
    assert tree.masks(group(both[0]))[0] == tree.masks(group(both[1]))[1]


def keeps_on(agent: Agent, tree: Tree, vm: RunningVm, cache: int) -> bool:
    """Whether it has its ways on one cache, whatever others have elsewhere."""
    told: dict[str, Any] = agent.get(f"/v1/vms/{vm.uuid}")
    mask = tree.masks(group(vm))[cache]
    masks = {int(at): int(text, 16) for at, text in told["masks"].items()}
    return told["state"] == "kept" and masks == {cache: mask} and not mask & tree.masks()[cache]


def test_ways_for_two_sockets_are_enough_for_two_vms_that_would_not_fit_on_one(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    ways = (tree.every_way.bit_count() - DEFAULT_WAYS_MIN) // 2 + 1
    both = [make_vm({"hw:cache_ways": str(ways)}, cputune=pins(cpu)) for cpu in "01"]
    for vm in both:
        wait_for(partial(is_in, quick_agent, vm, "kept"), f"{vm.name} being kept")
    pin_everything(both[0], "1")

    def finds_no_room() -> bool:
        # On the way some of its tasks are pinned already, and others not yet.
        told = quick_agent.get(f"/v1/vms/{both[0].uuid}")
        return told["state"] == "pending" and told["caches"] == [1] and "L3 cache 1 has" in told["reason"]

    wait_for(finds_no_room, "one VM finding no room", AT_ONCE)
    assert keeps_all(quick_agent, tree, both[1], ways), "the VM that was there first has lost something"
    pin_everything(both[0], "0")
    wait_for(lambda: quick_agent.get(f"/v1/vms/{both[0].uuid}")["state"] == "kept", "the first VM being kept", AT_ONCE)


def keeps_all(agent: Agent, tree: Tree, vm: RunningVm, ways: int) -> bool:
    """Whether the VM on the second socket has all of its ways."""
    mask = tree.masks(group(vm))[1]
    return is_in(agent, vm, "kept") and mask.bit_count() == ways and not mask & tree.masks()[1]


def test_the_promise_follows_a_vm_that_is_pinned_elsewhere(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_4, vcpus=2)
    wait_for(lambda: keeps(quick_agent, tree, vm, 0, 1), "the VM having its ways on both caches")
    for cpus, caches in (("0", [0]), ("1", [1]), ("01", [0, 1]), ("1", [1])):
        pin_everything(vm, cpus, vcpus=2)
        wait_for(partial(keeps, quick_agent, tree, vm, *caches), f"the ways being on {caches}", AT_ONCE)
        assert all_in(tree, group(vm), vm)


@pytest.mark.parametrize("what", ["vcpu", "emulator"])
def test_one_task_that_is_let_out_takes_ways_on_the_other_cache(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor, what: str
) -> None:
    vm = make_vm(EXCLUSIVE_4, cputune=pins("0"))
    wait_for(lambda: keeps(quick_agent, tree, vm, 0), "the VM having its ways on the first cache alone")
    for cpus, caches in (("01", [0, 1]), ("0", [0])):
        if what == "vcpu":
            vm.domain.pinVcpuFlags(0, two(cpus), libvirt.VIR_DOMAIN_AFFECT_LIVE)
        else:
            vm.domain.pinEmulator(two(cpus), libvirt.VIR_DOMAIN_AFFECT_LIVE)
        wait_for(partial(keeps, quick_agent, tree, vm, *caches), f"the ways being on {caches}", AT_ONCE)


def test_a_vm_that_is_pinned_behind_libvirts_back_is_found_by_the_audit(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_4)
    wait_for(lambda: keeps(agent, tree, vm, 0, 1), "the VM having its ways on both caches")
    for cpus in ({0}, {1}, {0, 1}):
        for tid in vm.tasks():
            os.sched_setaffinity(tid, cpus)
        wait_for(partial(keeps, agent, tree, vm, *cpus), f"the ways being on {cpus}")


def test_a_vcpu_that_is_plugged_in_takes_ways_where_it_can_run(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_4, vcpus=1, max_vcpus=2, cputune=pins("0") + '<vcpupin vcpu="1" cpuset="1"/>')
    wait_for(lambda: keeps(quick_agent, tree, vm, 0), "the VM having its ways on the first cache alone")
    vm.domain.setVcpusFlags(2, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    wait_for(lambda: keeps(quick_agent, tree, vm, 0, 1), "the ways being on both caches", AT_ONCE)
    assert all_in(tree, group(vm), vm)
