# SPDX-License-Identifier: Apache-2.0
"""Others use resctrl too, and the hardware's numbers end somewhere."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator

import pytest

from tests.functional.agent.conftest import WaitForVm, wait_until_told
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, EXCLUSIVE_4, SHARED_3, all_in, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, Pace, WaitFor
from tools.lab.agent import Agent
from tools.lab.resctrl import Resctrl


def write_values(tree: Tree, name: str, mask: int) -> None:
    line = ";".join(f"{cache}={mask:x}" for cache in tree.masks(name))
    descriptor = os.open(tree.root / name / "schemata", os.O_WRONLY)
    try:
        os.write(descriptor, f"L3:{line}\n".encode())
    finally:
        os.close(descriptor)


@pytest.fixture
def unguarded(make_agent: MakeAgent) -> Agent:
    """An agent that leaves the kernel's mode exclusive alone, so that others can get in its way."""
    agent = make_agent({"allocation": {"kernel_exclusive": False}})
    agent.start()
    return agent


def test_an_idle_agent_writes_nothing(agent: Agent, resctrl: Resctrl, tree: Tree, wait_for: WaitFor) -> None:
    write_values(tree, "", tree.every_way & ~0xF)
    changes = resctrl.changes()
    passes = agent.get("/v1/health")["passes"]
    wait_for(lambda: agent.get("/v1/health")["passes"] > passes + 5, "some passes")
    assert resctrl.changes() == changes


def test_a_settled_agent_writes_nothing(
    agent: Agent, resctrl: Resctrl, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor, pace: Pace
) -> None:
    for specs in (EXCLUSIVE_4, SHARED_3, {}):
        wait_for_vm(make_vm(specs), "kept" if specs else "none")
    interval = pace.agent["agent"]["full_audit_interval"]
    assert isinstance(interval, float)
    # A thread that QEMU began while it was looked at may be left to the first full audit.
    changes = list[list[str]]()
    for _ in range(2):
        time.sleep(1.5 * interval)
        passes = agent.get("/v1/health")["passes"]
        wait_for(lambda passes=passes: agent.get("/v1/health")["passes"] > passes + 1, "a full audit being over")  # type: ignore[misc]
        changes.append(resctrl.changes())
    assert changes[0] == changes[1]


def test_a_foreign_group_from_before_is_never_touched(
    tree: Tree, make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    (tree.root / "COS1").mkdir()
    write_values(tree, "COS1", 0x3)
    agent = make_agent()
    agent.start()
    vm = make_vm(EXCLUSIVE_4)
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being kept")
    assert set(tree.masks("COS1").values()) == {0x3} and tree.mode("COS1") == "shareable"
    assert not list(tree.violations([group(vm)]))


def test_the_kernel_itself_keeps_others_out(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    vm = make_vm(EXCLUSIVE_4)
    kept = wait_for_vm(vm, "kept")
    assert tree.mode(group(vm)) == "exclusive"
    (tree.root / "foreign").mkdir()
    assert not list(tree.violations([group(vm)]))
    with pytest.raises(OSError) as refused:
        write_values(tree, "foreign", int(kept["masks"]["0"], 16))
    assert refused.value.errno == errno.EINVAL
    assert wait_for_vm(vm, "kept")["masks"] == kept["masks"]


def test_a_vm_moves_out_of_the_way_of_a_foreign_group(
    unguarded: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_4)
    wait_for(lambda: unguarded.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being kept")
    ways = tree.masks(group(vm))[0]
    (tree.root / "foreign").mkdir()
    write_values(tree, "foreign", ways & -ways)

    def is_out_of_the_way() -> bool:
        # Between two writes of one pass it has fewer ways, and is told as it was before.
        masks = tree.masks(group(vm))
        told = unguarded.get(f"/v1/vms/{vm.uuid}")
        return (
            told["state"] == "kept"
            and {int(cache): int(mask, 16) for cache, mask in told["masks"].items()} == masks
            and {mask.bit_count() for mask in masks.values()} == {4}
            and not list(tree.violations([group(vm)]))
        )

    wait_for(is_out_of_the_way, "the VM being out of the way")
    assert set(tree.masks("foreign").values()) == {ways & -ways}
    assert all_in(tree, group(vm), vm)


def test_a_vm_that_can_not_get_out_of_the_way_names_who_is_in_it(
    unguarded: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm({"hw:cache_ways": str(tree.every_way.bit_count() - 3)})
    wait_for(lambda: unguarded.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being kept")
    before = tree.masks(group(vm))
    (tree.root / "foreign").mkdir()
    in_the_way = 3 * (before[0] & -before[0])
    write_values(tree, "foreign", in_the_way)
    wait_until_told(unguarded, wait_for, vm, "degraded", reason="foreign")
    assert tree.masks(group(vm)) == before and set(tree.masks("foreign").values()) == {in_the_way}
    os.rmdir(tree.root / "foreign")
    wait_for(lambda: unguarded.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being kept again")


def test_tasks_in_a_foreign_group_are_left_there(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept")
    (tree.root / "foreign").mkdir()
    taken = vm.pid
    (tree.root / "foreign" / "tasks").write_text(f"{taken}\n")
    wait_for_vm(vm, "degraded", reason="another program")
    assert tree.tasks("foreign") == {taken}


@pytest.mark.parametrize("simulator", ["minimal"], indirect=True)
def test_when_no_closid_is_left_a_vm_waits_for_one(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    first = [make_vm({"hw:cache_ways": "1"}) for _ in range(3)]
    for vm in first:
        wait_for_vm(vm, "kept")
    late = make_vm({"hw:cache_ways": "1"})
    wait_for_vm(late, "pending", reason="CLOSID")
    first[1].domain.destroy()
    wait_for_vm(late, "kept")
    assert all_in(tree, group(late), late)


@pytest.mark.parametrize("simulator", ["minimal"], indirect=True)
def test_when_no_closid_is_left_a_vm_may_join_a_class(
    make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = make_agent({"allocation": {"when_full": "share"}})
    agent.start()
    first = [make_vm({"hw:cache_ways": "1"}), make_vm({"hw:cache_ways": "1"}),
             make_vm({"hw:cache_ways": "2", "hw:cache_policy": "shared"})]  # fmt: skip
    for vm in first:
        wait_for(lambda vm=vm: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being kept")  # type: ignore[misc]
    late = make_vm({"hw:cache_ways": "2"})
    # A VM that is degraded may have tasks that are yet to be moved.
    wait_until_told(
        agent,
        wait_for,
        late,
        "degraded",
        reason="CLOSID",
        group="vmqos.shared-ways2",
        whole=lambda told: all_in(tree, "vmqos.shared-ways2", late),
    )


@pytest.mark.parametrize("simulator", ["minimal"], indirect=True)
def test_when_no_rmid_is_left_vms_are_unmonitored_and_promises_are_kept(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    rmids = int((tree.root / "info/L3_MON/num_rmids").read_text())
    plain = [make_vm() for _ in range(rmids)]
    told = [wait_for_vm(vm, "none") for vm in plain]
    without = [vm for vm in told if vm["monitoring_group"] is None]
    assert without and all("RMID" in vm["unmonitored_reason"] for vm in without)
    promised = make_vm({"hw:cache_ways": "1"})
    wait_for_vm(promised, "kept")
    assert all_in(tree, group(promised), promised)


@pytest.fixture
def reserving(make_agent: MakeAgent) -> Iterator[Agent]:
    """An agent that leaves the two lowest ways to somebody else."""
    agent = make_agent({"allocation": {"reserved_ways": "3"}})
    agent.start()
    yield agent


def test_reserved_ways_are_nobodys(reserving: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor) -> None:
    wait_for(lambda: tree.masks()[0] == tree.every_way & ~0x3, "the default group leaving them alone")
    vm = make_vm(EXCLUSIVE_4)
    wait_for(lambda: reserving.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being kept")
    held = 0
    for name in ("", group(vm)):
        held |= tree.masks(name)[0]
    assert held & 0x3 == 0
