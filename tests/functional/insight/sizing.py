# SPDX-License-Identifier: Apache-2.0
"""What the tests of ``vmqos size`` have in common: an agent that looks often, and what it and resctrl say of ways."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.functional.conftest import MakeAgent
from tests.functional.insight.test_confirm import start
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from tools.lab.vms import RunningVm

INTERVAL = 0.3
TWO = {"hw:cache_ways": "2"}
SLOW = 180.0
"""Seconds within which a machine that is busy has done what takes it some ten."""


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """An agent that looks often."""
    made = make_agent({"telemetry": {"interval": str(INTERVAL), "hardware_events": "false"}})
    made.start()
    return made


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a command.

    :ivar seen: what the agent told of all VMs, by UUID, again and again while the command ran.
    """

    status: int
    out: str
    err: str
    seen: list[dict[str, Any]]


def run_watched(agent: Agent, *arguments: str, is_patient: bool = True) -> Ended:
    """Run the command to its end, and look at the VMs meanwhile.

    :param is_patient: see :func:`tests.functional.insight.test_confirm.start`.
    """
    running, seen = start(agent, *arguments, is_patient=is_patient), list[dict[str, Any]]()
    while running.poll() is None:
        seen.append({one["uuid"]: one for one in agent.get("/v1/vms")["vms"]})
        time.sleep(INTERVAL / 3)
    out, err = running.communicate()
    return Ended(running.returncode, out, err, seen)


def ways_of(vm: Any) -> set[int]:
    """How many ways the agent says that a VM has, on any cache."""
    return {int(mask, 16).bit_count() for mask in vm["masks"].values()}


def told(agent: Agent, vm: RunningVm) -> Any:
    return next(one for one in agent.get("/v1/vms")["vms"] if one["uuid"] == vm.uuid)


def in_resctrl(simulator: Simulator, vm: RunningVm) -> set[int]:
    """How many ways the VM's control group has, on any cache."""
    text = (simulator.root / f"vmqos.{vm.uuid}" / "schemata").read_text()
    line = next(line for line in text.splitlines() if line.strip().startswith("L3:"))
    return {int(part.partition("=")[2], 16).bit_count() for part in line.partition(":")[2].split(";")}


def free_ways(agent: Agent) -> set[int]:
    return {cache["free_ways"] for cache in agent.get("/v1/caches")["caches"]}
