# SPDX-License-Identifier: Apache-2.0
"""What the agent's tests share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from tests.functional.agent.tree import Tree
from tests.functional.conftest import WaitFor
from tools.lab.agent import Agent
from tools.lab.resctrl import Resctrl
from tools.lab.vms import RunningVm
from vmqos.agent.act.monitoring_groups import YET_TO_BE_MADE
from vmqos.agent.act.task_placer import YET_TO_BE_MOVED

WaitForVm = Callable[..., dict[str, Any]]


@pytest.fixture
def tree(resctrl: Resctrl) -> Tree:
    """The resctrl tree, read from outside."""
    return Tree(resctrl.root)


@pytest.fixture
def wait_for_vm(agent: Agent, wait_for: WaitFor) -> WaitForVm:
    """Wait until the agent says of a VM that it is in a state, with all tasks in place; what the agent says of it."""

    return functools.partial(wait_until_told, agent, wait_for)


def wait_until_told(agent: Agent, wait_for: WaitFor, vm: RunningVm, state: str, **expected: object) -> dict[str, Any]:
    """What the agent says of a VM once it says that it is in this state, and what else is expected."""
    last: dict[str, Any] = {}

    def reached() -> bool:
        last.clear()
        last.update(agent.get(f"/v1/vms/{vm.uuid}"))
        # On a slow machine the monitoring group is made, and filled, a pass or two after the promise is kept.
        if last["unmonitored_reason"] in {YET_TO_BE_MADE, YET_TO_BE_MOVED}:
            return False
        return last["state"] == state and all(last[key] == value for key, value in expected.items())

    try:
        wait_for(reached, f"{vm.name} being {state} {expected or ''}")
    except TimeoutError as error:
        raise AssertionError(f"{error}; the agent says: {last}") from error
    return last
