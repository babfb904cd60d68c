# SPDX-License-Identifier: Apache-2.0
"""L2 ways on the kernel's own resctrl: the functional tests of the same name, and the registers."""

from __future__ import annotations

import os

import pytest

from tests.functional.agent import test_l2 as functional
from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, all_in, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeVm, WaitFor
from tests.kernel.agent import groups
from tests.kernel.agent.kernel_resctrl import KernelResctrl
from tools.lab.agent import Agent

WITH = pytest.mark.guest(machines=("sapphire-rapids",), kernels=("6.12",))
WITH_EITHER_KERNEL = pytest.mark.guest(machines=("sapphire-rapids",))
WITHOUT = pytest.mark.guest(pairs=("cascade-lake-6.12",))
L2_ALONE = pytest.mark.guest(pairs=("goldmont-6.12",))

L2_MASK_0 = 0xD10
"""IA32_L2_MASK_0; that of CLOSID n is n further on (Intel SDM volume 4)."""


@pytest.mark.feature("l2")
@WITH_EITHER_KERNEL
def test_a_pinned_vm_has_ways_of_its_own_in_its_cores_l2(
    agent: Agent, resctrl: KernelResctrl, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    functional.test_a_pinned_vm_has_ways_of_its_own_in_its_cores_l2(agent, tree, make_vm, wait_for_vm)
    vm = make_vm(functional.L2_WAYS, cpuset="1")
    ((cache, mask),) = wait_for_vm(vm, "kept")["l2_masks"].items()
    registers = os.open("/dev/cpu/1/msr", os.O_RDONLY | os.O_CLOEXEC)
    try:
        number = L2_MASK_0 + groups.closid(resctrl.root, group(vm))
        assert int.from_bytes(os.pread(registers, 8, number), "little") == int(mask, 16)
    finally:
        os.close(registers)
    assert functional.l2_masks(tree, group(vm))[int(cache)] == {int(mask, 16)}


@pytest.mark.feature("l2")
@WITH
def test_a_vm_that_is_not_pinned_is_told_so(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    functional.test_a_vm_that_is_not_pinned_is_told_so(agent, tree, make_vm, wait_for_vm)


@pytest.mark.feature("l2")
@WITH
def test_when_it_is_gone_the_l2s_are_whole(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    functional.test_when_it_is_gone_the_l2s_are_whole(agent, tree, make_vm, wait_for_vm, wait_for)


@pytest.mark.feature("l2", kept=False)
@WITHOUT
def test_a_machine_without_l2_cat_says_so(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    functional.test_a_machine_without_l2_cat_says_so(agent, tree, make_vm, wait_for_vm)


@pytest.mark.feature("l2")
@pytest.mark.feature("ways", kept=False)
@pytest.mark.feature("cdp", kept=False)
@pytest.mark.feature("percent", kept=False)
@L2_ALONE
def test_a_machine_of_l2_ways_alone_gives_them_and_says_what_it_lacks(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(functional.L2_WAYS, cpuset="1")
    told = wait_for_vm(vm, "kept", group=group(vm))
    ((cache, mask),) = ((int(cache), int(mask, 16)) for cache, mask in told["l2_masks"].items())
    assert functional.l2_masks(tree, group(vm))[cache] == {mask} and mask.bit_count() == 4
    assert all_in(tree, group(vm), vm)
    assert all(not mask & other for other in functional.l2_masks(tree)[cache])
    no_l3 = "this host's L3 cache can't be partitioned"
    for specs, lacks in (
        (EXCLUSIVE_2, no_l3),
        ({"hw:cache_code_ways": "1", "hw:cache_data_ways": "1"}, no_l3),
        ({"hw:mem_bandwidth_percent": "50"}, "this host's memory bandwidth can't be throttled"),
    ):
        wait_for_vm(make_vm(specs), "pending", group="", reason=lacks)
    assert tree.groups() == [group(vm)]
