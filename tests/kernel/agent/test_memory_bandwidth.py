# SPDX-License-Identifier: Apache-2.0
"""Limits of memory bandwidth on the kernel's own resctrl: the functional tests of the same name."""

from __future__ import annotations

import pytest

from tests.functional.agent import test_memory_bandwidth as functional
from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeVm
from tools.lab.agent import Agent

PER_CENT = pytest.mark.guest(machines=("cascade-lake", "sapphire-rapids"))
IN_MBPS = pytest.mark.parametrize("resctrl", [("mba_MBps",)], indirect=True)
AMD = pytest.mark.guest(pairs=("milan-kvm-6.12", "milan-6.12", "milan-newest", "genoa-6.12", "genoa-newest"))
WITHOUT = pytest.mark.guest(pairs=("broadwell-6.12",))


@pytest.mark.feature("percent")
@PER_CENT
def test_per_cent_are_a_class_that_has_the_default_groups_ways(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    functional.test_per_cent_are_a_class_that_has_the_default_groups_ways(agent, tree, make_vm, wait_for_vm)


@pytest.mark.feature("mba_MBps", kept=False)
@PER_CENT
def test_mbps_are_pending_where_resctrl_takes_per_cent_and_the_command_is_told(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    functional.test_mbps_are_pending_where_resctrl_takes_per_cent_and_the_command_is_told(
        agent, tree, make_vm, wait_for_vm
    )


@pytest.mark.feature("mba_MBps")
@pytest.mark.feature("percent", kept=False)
@PER_CENT
@IN_MBPS
def test_mbps_are_a_group_of_each_vms_own(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    functional.test_mbps_are_a_group_of_each_vms_own(agent, tree, make_vm, wait_for_vm)


@pytest.mark.feature("gbps")
@pytest.mark.feature("percent", kept=False)
@AMD
def test_mbps_are_rounded_up_to_steps_of_1_8_gbps_on_amd(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    functional.test_mbps_are_rounded_up_to_steps_of_1_8_gbps_on_amd(agent, tree, make_vm, wait_for_vm)


@pytest.mark.feature("percent", kept=False)
@pytest.mark.feature("mba_MBps", kept=False)
@pytest.mark.feature("ways")
@WITHOUT
def test_a_machine_without_mba_says_so_and_gives_the_ways(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    functional.test_a_machine_without_mba_says_so_and_gives_the_ways(agent, tree, make_vm, wait_for_vm)
