# SPDX-License-Identifier: Apache-2.0
"""The main promises on every machine that has L3 ways, with either kernel: the functional tests of the same name."""

from __future__ import annotations

import pytest

from tests.functional.agent import test_cache_vcpus, test_confined
from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.test_confined import quick_agent
from tests.functional.agent.test_lifecycle import test_an_exclusive_vm_gets_its_ways_for_all_its_tasks
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeVm, WaitFor
from tools.lab.agent import Agent

pytestmark = [
    pytest.mark.guest(machines=("cascade-lake", "broadwell", "sapphire-rapids", "milan", "genoa")),
    pytest.mark.long,
]


@pytest.mark.feature("vcpus")
def test_the_named_vcpus_alone_get_the_ways(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    test_cache_vcpus.test_the_named_vcpus_alone_get_the_ways(agent, tree, make_vm, wait_for_vm)


@pytest.mark.feature("confined")
def test_vms_on_two_sockets_have_the_same_ways_each_on_its_own(
    quick_agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    test_confined.test_vms_on_two_sockets_have_the_same_ways_each_on_its_own(quick_agent, tree, make_vm, wait_for)


__all__ = ["quick_agent", "test_an_exclusive_vm_gets_its_ways_for_all_its_tasks"]
