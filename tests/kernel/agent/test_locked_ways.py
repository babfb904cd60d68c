# SPDX-License-Identifier: Apache-2.0
"""An agent and its VMs beside cache that the kernel has pseudo-locked: the functional test of ``vmqos lock``."""

from __future__ import annotations

import pytest

from tests.functional.agent.tree import Tree
from tests.functional.cli import test_lock as functional
from tests.functional.conftest import MakeVm, WaitFor
from tools.lab.agent import Agent

pytestmark = [pytest.mark.guest(pairs=("broadwell-6.12",)), pytest.mark.feature("lock")]


def test_an_agent_and_its_vms_are_not_disturbed_by_a_lock(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    functional.test_an_agent_and_its_vms_are_not_disturbed_by_a_lock(agent, tree, make_vm, wait_for)
