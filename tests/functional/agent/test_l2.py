# SPDX-License-Identifier: Apache-2.0
"""L2 ways for pinned VMs, on a machine that has L2 CAT (with and without CDP there) and on one that has not."""

from __future__ import annotations

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, all_in, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeVm, WaitFor
from tools.lab.agent import Agent

pytestmark = pytest.mark.feature("l2")

L2_WAYS = {"hw:l2_cache_ways": "4"}

WITH = pytest.mark.parametrize("simulator", ["sapphire-rapids", ("sapphire-rapids", "cdpl2")], indirect=True)
WITHOUT = pytest.mark.parametrize("simulator", ["cascade-lake"], indirect=True)


def l2_masks(tree: Tree, name: str = "") -> dict[int, set[int]]:
    """The group's L2 masks by cache id: one, or one for code and one for data."""
    found: dict[int, set[int]] = {}
    for resource in ("L2", "L2CODE", "L2DATA"):
        for cache, mask in tree.values(resource, name).items():
            found.setdefault(cache, set()).add(int(mask, 16))
    return found


@WITH
def test_a_pinned_vm_has_ways_of_its_own_in_its_cores_l2(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    whole = l2_masks(tree)
    vm = make_vm(L2_WAYS, cpuset="0")
    told = wait_for_vm(vm, "kept", group=group(vm))
    ((cache, mask),) = ((int(cache), int(mask, 16)) for cache, mask in told["l2_masks"].items())
    assert mask.bit_count() == 4 and told["masks"] == {} and all_in(tree, group(vm), vm)
    assert l2_masks(tree, group(vm))[cache] == {mask}
    assert all(not mask & other for other in l2_masks(tree)[cache])
    for other in whole.keys() - {cache}:
        assert l2_masks(tree)[other] == l2_masks(tree, group(vm))[other] == whole[other]
    second = make_vm({**EXCLUSIVE_2, **L2_WAYS}, cpuset="0")
    wait_for_vm(second, "kept", group=group(second))
    groups = [l2_masks(tree, name)[cache] for name in ("", group(vm), group(second))]
    everybody = [ways for masks in groups for ways in masks]
    assert sum(ways.bit_count() for ways in everybody) == 16 and sum(everybody) == 0xFFFF


@WITH
def test_a_vm_that_is_not_pinned_is_told_so(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    wait_for_vm(make_vm(L2_WAYS), "pending", group="", reason="pinned to one core")
    told = wait_for_vm(make_vm({**EXCLUSIVE_2, **L2_WAYS}), "degraded", reason="pinned to one core")
    assert told["masks"] and not told["l2_masks"]


@WITH
def test_when_it_is_gone_the_l2s_are_whole(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    whole = l2_masks(tree)
    vm = make_vm(L2_WAYS, cpuset="0")
    wait_for_vm(vm, "kept")
    assert l2_masks(tree) != whole
    vm.domain.destroy()
    wait_for(lambda: tree.groups() == [] and l2_masks(tree) == whole, "the L2s being whole again")


@pytest.mark.feature("l2", kept=False)
@WITHOUT
def test_a_machine_without_l2_cat_says_so(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    wait_for_vm(make_vm(L2_WAYS, cpuset="0"), "pending", group="", reason="this host's L2 caches can't be partitioned")
