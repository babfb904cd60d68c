# SPDX-License-Identifier: Apache-2.0
"""A thief of cache among real VMs, on a simulator whose counters show what it does: the agent names it."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.test_commands import vmqos
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from tools.lab.vms import RunningVm
from tools.lab.workspace import Workspace

INTERVAL = 1.0
"""Seconds: the shorter it is, the farther from what is played are the rates where a sweep waits for a CPU."""
MIB = 1 << 20

_numbers = itertools.count(1)

AT_REST = (1 * MIB, 20e6)
CALM, ROBBED = (6 * MIB, 60e6), (2 * MIB, 600e6)
THIEF = (8 * MIB, 4e9)
HUNGRY, SLOWED, FLOOD = (2 * MIB, 5e9), (2 * MIB, 3e9), (1 * MIB, 20e9)
"""Bytes held, and bytes a second moved."""


@pytest.fixture
def simulator(workspace: Workspace, request: pytest.FixtureRequest) -> Iterator[Simulator]:
    """See :mod:`tests.functional.insight.playing_simulator`; a parameter names another machine and mount options."""
    simulated = Simulator(
        workspace,
        *getattr(request, "param", ()),
        name=f"played-{next(_numbers)}",
        module="tests.functional.insight.playing_simulator",
    )
    try:
        simulated.start()
        yield simulated
    finally:
        simulated.stop()


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """An agent that judges after each look."""
    made = make_agent(
        {"telemetry": {"interval": str(INTERVAL), "neighbours_interval": "1", "hardware_events": "false"}}
    )
    made.start()
    return made


def play(
    simulator: Simulator,
    vms: Mapping[str, Any],
    *,
    limited: str = "",
    ways: int | None = None,
    otherwise: Mapping[str, Any] | None = None,
) -> None:
    """Have VMs do this from now on, see :mod:`tests.functional.insight.playing_simulator`.

    :param limited: the UUID of a VM; while its memory bandwidth is limited, they do what ``otherwise`` says.
    :param ways: it is limited while it fills so many ways at most, in a control group of its own.
    """
    told: dict[str, object] = {**vms}
    if limited:
        told["limited"] = {"vm": limited, "ways": ways, "vms": otherwise}
    file = Path(f"{simulator.root}.json")
    new = file.with_suffix(".new")
    new.write_text(json.dumps(told))
    os.replace(new, file)


def samples_of(agent: Agent, vm: RunningVm, does: tuple[int, float]) -> int:
    """In how many samples of a VM the agent saw it do this: how much it holds, and moves a second."""
    samples = agent.get("/v1/neighbours/samples")["samples"].get(vm.uuid, [])
    return sum(one["bandwidth"] == pytest.approx(does[1], rel=0.15) for one in samples)


def about_neighbours(agent: Agent) -> list[Any]:
    return [event for event in agent.get("/v1/events")["events"] if event["kind"] == "neighbour"]


def test_a_vm_that_takes_the_cache_of_another_is_named_and_there_is_an_event_when_it_begins_and_ends(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    victim, thief, other = make_vm(display_name="db-1"), make_vm(display_name="batch-1"), make_vm()
    play(simulator, {victim.uuid: CALM, thief.uuid: AT_REST, other.uuid: AT_REST})

    wait_for(lambda: samples_of(agent, victim, CALM) >= 15, "samples of a calm time")
    assert agent.get("/v1/neighbours")["pairs"] == []
    ran = [one["cpu_time"] for one in agent.get("/v1/neighbours/samples")["samples"][victim.uuid][2:]]
    assert all(0 <= seconds < 0.5 for seconds in ran), "its process does next to nothing"

    play(simulator, {victim.uuid: ROBBED, thief.uuid: THIEF, other.uuid: AT_REST})
    wait_for(lambda: len(about_neighbours(agent)) == 1, "an event")
    (pair,) = agent.get("/v1/neighbours")["pairs"]
    assert (pair["culprit"], pair["victim"], pair["cause"]) == (thief.uuid, victim.uuid, "cache")
    assert pair["taken"] == pytest.approx(4 * MIB, rel=0.1)
    (event,) = about_neighbours(agent)
    assert (event["uuid"], event["name"], event["culprit"]) == (victim.uuid, "db-1", thief.uuid)
    assert (event["state"], event["reason_code"]) == ("slowed", "cache")
    assert event["reason"].startswith(f"batch-1 ({thief.uuid}) takes cache from it")

    thief.domain.destroy()
    wait_for(lambda: len(about_neighbours(agent)) == 2, "the end of it")
    over = about_neighbours(agent)[-1]
    assert (over["uuid"], over["state"], over["reason"]) == (
        victim.uuid, "undisturbed", f"batch-1 ({thief.uuid}) has ended",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("simulator", "option", "figures"),
    [
        (("cascade-lake",), "--bandwidth-percent", range(30, 31)),
        (("cascade-lake", "mba_MBps"), "--bandwidth-mbps", range(5000, 7001)),
        (("milan",), "--bandwidth-mbps", range(5000, 7001)),
    ],
    indirect=["simulator"],
    ids=["per cent", "the kernel's MB/s", "AMD"],
)
def test_a_limit_of_memory_bandwidth_is_advised_in_what_the_host_limits_in(
    option: str, figures: range, agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    victim, flood = make_vm(display_name="db-1"), make_vm(display_name="batch-1")
    play(simulator, {victim.uuid: HUNGRY, flood.uuid: AT_REST})

    wait_for(lambda: samples_of(agent, victim, HUNGRY) >= 15, "samples of a calm time")
    play(simulator, {victim.uuid: SLOWED, flood.uuid: FLOOD})
    wait_for(lambda: len(agent.get("/v1/neighbours")["pairs"]) == 1, "a verdict")
    (pair,) = agent.get("/v1/neighbours")["pairs"]
    assert (pair["culprit"], pair["victim"], pair["cause"]) == (flood.uuid, victim.uuid, "memory-bandwidth")
    unit = agent.get(f"/v1/vms/{flood.uuid}")["bandwidth_unit"]
    assert agent.get("/v1/neighbours/samples")["host"]["bandwidth_unit"] == unit
    command, _, figure = pair["advice"].rpartition(" ")
    assert command.endswith(option) and int(figure) in figures
    said = vmqos(agent, "neighbours", victim.uuid)
    assert said.returncode == 0 and f"    {command} " in said.stdout


def test_a_vm_that_was_started_again_between_two_looks_is_judged_by_its_new_run_alone(
    make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = make_agent({"telemetry": {"interval": "3", "hardware_events": "false"}})
    agent.start()
    vm, other = make_vm(), make_vm()

    def times(of: RunningVm) -> list[float]:
        return [one["time"] for one in agent.get("/v1/neighbours/samples")["samples"].get(of.uuid, [])]

    wait_for(lambda: len(times(vm)) >= 2, "samples of its first run")
    vm.domain.destroy()
    ended = time.time()
    vm.domain.create()
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["pid"] == vm.pid, "its new run being known")
    assert all(when > ended for when in times(vm))
    wait_for(lambda: bool(times(vm)), "a sample of its new run")
    assert times(vm)[0] > ended and times(other)[0] < ended
