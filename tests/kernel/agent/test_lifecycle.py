# SPDX-License-Identifier: Apache-2.0
"""A VM's life on the kernel's own resctrl: the functional tests of the same name, and the kernel's word on each."""

from __future__ import annotations

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.test_lifecycle import (
    test_a_crashed_qemu_gives_its_ways_back,
    test_a_live_change_of_the_metadata_resizes_the_promise,
    test_a_paused_vm_keeps_its_ways,
    test_a_thread_that_somebody_moved_away_is_brought_back,
    test_a_vm_confined_to_one_cache_pays_on_that_cache_alone,
    test_a_vm_that_asks_for_nothing_is_monitored_in_the_default_group,
    test_a_vm_that_changes_from_exclusive_to_shared_and_back_is_never_without_a_group,
    test_an_exclusive_vm_gets_its_ways_for_all_its_tasks,
    test_hot_plugged_vcpus_are_in_the_group,
    test_sharing_vms_are_in_one_class_and_monitored_each,
)
from tests.functional.agent.test_lifecycle import test_a_stopped_vm_leaves_a_clean_host as stop_vms_of_each_kind
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeVm, WaitFor
from tests.kernel.agent import groups
from tests.kernel.agent.kernel_resctrl import KernelResctrl
from tests.kernel.agent.registers import L3Registers
from tools.lab.agent import Agent

pytestmark = pytest.mark.guest(machines=("milan-kvm",), kernels=("6.12",))


def test_when_vms_and_agent_are_gone_nothing_is_left(
    agent: Agent,
    resctrl: KernelResctrl,
    registers: L3Registers,
    tree: Tree,
    make_vm: MakeVm,
    wait_for_vm: WaitForVm,
    wait_for: WaitFor,
) -> None:
    stop_vms_of_each_kind(agent, tree, make_vm, wait_for_vm, wait_for)
    assert agent.stop() == 0
    assert groups.names(resctrl.root) == []
    assert set(registers.masks(0).values()) == {tree.every_way}


__all__ = [
    "test_a_crashed_qemu_gives_its_ways_back",
    "test_a_live_change_of_the_metadata_resizes_the_promise",
    "test_a_paused_vm_keeps_its_ways",
    "test_a_thread_that_somebody_moved_away_is_brought_back",
    "test_a_vm_confined_to_one_cache_pays_on_that_cache_alone",
    "test_a_vm_that_asks_for_nothing_is_monitored_in_the_default_group",
    "test_a_vm_that_changes_from_exclusive_to_shared_and_back_is_never_without_a_group",
    "test_an_exclusive_vm_gets_its_ways_for_all_its_tasks",
    "test_hot_plugged_vcpus_are_in_the_group",
    "test_sharing_vms_are_in_one_class_and_monitored_each",
]
