# SPDX-License-Identifier: Apache-2.0
"""``vmqos neighbours VM --confirm`` where bandwidth can't be limited: a thief of cache is confined to a few ways.

Whatever ends the command or the agent, the groups are what they were, some seconds later.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.functional.conftest import MakeVm, WaitFor
from tests.functional.insight.test_confirm import (
    SOME_SAMPLES,
    Groups,
    confirming,
    end_by,
    groups,
    lasting_of,
    of_these,
    settled,
    start,
    steady_groups,
    trying,
)
from tests.functional.insight.test_confirm import agent as agent
from tests.functional.insight.test_confirm import judging_agent as judging_agent
from tests.functional.insight.test_confirm import victim as victim
from tests.functional.insight.test_neighbours import AT_REST, CALM, MIB, ROBBED, THIEF, play, samples_of
from tests.functional.insight.test_neighbours import simulator as simulator
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from tools.lab.vms import RunningVm

WITHOUT_LIMITS = pytest.mark.parametrize("simulator", [("broadwell",)], indirect=True, ids=["broadwell"])
KINDS = pytest.mark.parametrize(
    "specs", [{}, {"hw:cache_ways": "2", "hw:cache_policy": "shared"}], ids=["nothing promised", "in a class"]
)
CONFINED = (1 * MIB, 4.4e9)
"""A thief with few ways moves more than before."""


def respond(simulator: Simulator, victim: RunningVm, thief: RunningVm) -> None:
    """Have the VMs do what a thief of cache does to its victim, who has its cache back while the thief is confined."""
    otherwise = {victim.uuid: CALM, thief.uuid: CONFINED}
    play(simulator, {victim.uuid: ROBBED, thief.uuid: THIEF}, limited=thief.uuid, ways=2, otherwise=otherwise)


def counted(groups: Groups) -> Groups:
    """The groups with the numbers of their ways: those of a class may lie elsewhere after a trial."""

    def count(mask: re.Match[str]) -> str:
        return f"={int(mask[1], 16).bit_count()} ways"

    return {name: (re.sub(r"=([0-9a-f]+)", count, schemata), *rest) for name, (schemata, *rest) in groups.items()}


def is_put_back(simulator: Simulator, before: Groups) -> bool:
    """Whether all groups have again what they had, and as many ways."""
    now = groups(simulator)
    lasting = lasting_of(before)
    return counted(of_these(now, lasting)) == counted(of_these(before, lasting))


def is_confined(simulator: Simulator, vm: RunningVm) -> bool:
    return (simulator.root / f"vmqos.{vm.uuid}" / "schemata").exists()


@WITHOUT_LIMITS
@KINDS
def test_a_thief_of_cache_is_confined_meanwhile_and_the_verdict_is_confirmed(
    specs: dict[str, str],
    judging_agent: Agent,
    simulator: Simulator,
    victim: RunningVm,
    make_vm: MakeVm,
    wait_for: WaitFor,
) -> None:
    agent = judging_agent
    thief, other = make_vm(specs, display_name="batch-1"), make_vm({"hw:cache_ways": "2"})
    play(simulator, {victim.uuid: CALM, thief.uuid: AT_REST, other.uuid: AT_REST})
    wait_for(lambda: samples_of(agent, victim, CALM) >= 15, "samples of a calm time")
    respond(simulator, victim, thief)
    wait_for(lambda: len(agent.get("/v1/neighbours")["pairs"]) == 1, "a verdict")
    assert agent.get(f"/v1/vms/{thief.uuid}")["bandwidth_unit"] is None
    before, state = steady_groups(agent, simulator, wait_for), agent.get(f"/v1/vms/{thief.uuid}")["state"]
    running = start(agent, *confirming(victim, "-f", "json", seconds=SOME_SAMPLES), is_patient=True)
    seen: list[Any] = []
    while running.poll() is None:
        seen.append({vm["uuid"]: vm for vm in agent.get("/v1/vms", timeout=60.0)["vms"]})
    out, err = running.communicate()
    assert running.returncode == 0, (out, err)
    told = json.loads(out)
    wait_for(lambda: is_put_back(simulator, before), "everything being as before")
    assert (told["verdict"], told["cause"], told["limit"], told["unit"]) == ("confirmed", "cache", 2, "ways")
    figures = {one["figure"]: one for one in told["figures"]}
    assert figures["held_of_culprit"]["before"] == pytest.approx(THIEF[0], rel=0.05)
    assert figures["held_of_culprit"]["during"] == pytest.approx(CONFINED[0], rel=0.05)
    assert figures["traffic_of_culprit"]["during"] == pytest.approx(CONFINED[1], rel=0.15)
    assert err.splitlines() == ["before the trial ...", "batch-1 is confined ...", "after the trial ..."]
    # No promise was broken for it.
    assert {vms[thief.uuid]["state"] for vms in seen} == {state}
    assert {vms[other.uuid]["state"] for vms in seen} == {"kept"}
    assert all(mask.bit_count() == 2 for vms in seen for mask in _masks(vms[other.uuid]))


def _masks(vm: Any) -> list[int]:
    return [int(mask, 16) for mask in vm["masks"].values()]


@WITHOUT_LIMITS
@KINDS
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_everything_is_as_before_some_seconds_after_the_command_was_ended(
    specs: dict[str, str],
    number: signal.Signals,
    agent: Agent,
    simulator: Simulator,
    victim: RunningVm,
    make_vm: MakeVm,
    wait_for: WaitFor,
) -> None:
    thief = make_vm(specs)
    wait_for(lambda: settled(agent, victim, thief), "all tasks being in place")
    respond(simulator, victim, thief)
    before = steady_groups(agent, simulator, wait_for)
    running = confined(agent, simulator, victim, thief, wait_for)
    end_by(number, running, wait_for, agent, thief, lambda: is_put_back(simulator, before))
    wait_for(lambda: settled(agent, victim, thief), "all tasks being in place")


@WITHOUT_LIMITS
@pytest.mark.parametrize("end", [Agent.kill, Agent.stop], ids=["killed", "stopped"])
def test_everything_is_as_before_once_the_agent_was_ended_and_started_again(
    end: Callable[[Agent], object],
    agent: Agent,
    simulator: Simulator,
    victim: RunningVm,
    make_vm: MakeVm,
    wait_for: WaitFor,
) -> None:
    thief = make_vm()
    wait_for(lambda: settled(agent, victim, thief), "all tasks being in place")
    respond(simulator, victim, thief)
    before = steady_groups(agent, simulator, wait_for)
    running = confined(agent, simulator, victim, thief, wait_for)
    end(agent)
    if end is Agent.stop:
        assert is_put_back(simulator, before), "an agent that ends in an orderly way leaves nobody confined"
    agent.start()
    wait_for(lambda: is_put_back(simulator, before), "everything being as before")
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (1, "") and "the trial ended before its time" in err


def confined(agent: Agent, simulator: Simulator, victim: RunningVm, thief: RunningVm, wait_for: WaitFor) -> Any:
    """A command that has its culprit confined by now."""
    arguments = confirming(victim, "--culprit", thief.uuid, seconds="30")
    return trying(agent, arguments, lambda: is_confined(simulator, thief), "few ways", wait_for)
