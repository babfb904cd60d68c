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

UNFINISHED = frozenset({YET_TO_BE_MADE, YET_TO_BE_MOVED})
"""Why a VM is not counted yet, if that is all the same only a matter of a pass or two."""


@pytest.fixture
def tree(resctrl: Resctrl) -> Tree:
    """The resctrl tree, read from outside."""
    return Tree(resctrl.root)


@pytest.fixture
def wait_for_vm(agent: Agent, wait_for: WaitFor) -> WaitForVm:
    """Wait until the agent says of a VM that it is in a state, with all tasks in place; what the agent says of it.

    See :func:`wait_until_told`.
    """

    return functools.partial(wait_until_told, agent, wait_for)


def wait_until_told(
    agent: Agent,
    wait_for: WaitFor,
    vm: RunningVm,
    state: str,
    *,
    reason: str = "",
    whole: Callable[[dict[str, Any]], bool] = lambda told: True,
    **expected: object,
) -> dict[str, Any]:
    """What the agent says of a VM once one answer of its has all that is expected.

    A later pass may fill in what an earlier one left, so a test names all that it wants to find, and waits for it once.

    :param reason: words of the reason.
    :param whole: what else must be true of the answer, or of the host right after it.
    :param expected: values of the answer.
    :raises AssertionError: if no answer has all of it in time, with the last one.
    """
    last: dict[str, Any] = {}

    def reached() -> bool:
        last.clear()
        last.update(agent.get(f"/v1/vms/{vm.uuid}"))
        # On a slow machine the monitoring group is made, and filled, a pass or two after the promise is kept.
        if last["unmonitored_reason"] in UNFINISHED:
            return False
        if last["state"] != state or reason not in last["reason"]:
            return False
        return all(last[key] == value for key, value in expected.items()) and whole(last)

    try:
        wait_for(reached, f"{vm.name} being {state} {reason} {expected or ''}")
    except TimeoutError as error:
        raise AssertionError(f"{error}; the agent says: {last}") from error
    return dict(last)


def wait_until_all_are_counted(agent: Agent, wait_for: WaitFor) -> None:
    """Wait until every VM of the host has its monitoring group, those that a test did not make included."""
    wait_for(lambda: not uncounted(agent), "every VM being counted")


def uncounted(agent: Agent) -> dict[str, str]:
    """Why the agent does not count a VM, by the UUIDs of those that it does not."""
    return {vm["uuid"]: vm["unmonitored_reason"] for vm in agent.get("/v1/vms")["vms"] if vm["unmonitored_reason"]}
