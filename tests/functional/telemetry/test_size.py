# SPDX-License-Identifier: Apache-2.0
"""``vmqos size VM``: a VM is let have one more way after the other, on a simulator that plays what it does with each.

Whatever ends the command or the agent, and whoever needs the ways, they are free again some seconds later.
"""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.functional.cli.test_commands import vmqos
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.functional.telemetry.test_confirm import groups, settled, start
from tests.functional.telemetry.test_neighbours import AT_REST, MIB, play
from tests.functional.telemetry.test_neighbours import simulator as simulator
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from tools.lab.vms import RunningVm
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentRefused

INTERVAL = 0.3
TWO = {"hw:cache_ways": "2"}
FITS = {"2": [2 * MIB, 8e8], "more": [3 * MIB, 0.0]}
"""A VM that moves much with two ways, and nothing with three."""
NEVER_ENOUGH = {"2": [2 * MIB, 0.0], "more": [3 * MIB, [1e8, 9e8]]}
"""A VM that is soon known with two ways; with three it varies so much that it is watched for as long as may be."""
LAPSED = "nobody asked for it for 5 s"
"""What ends a trial on a machine that stands still for so long: the command is started again then."""
SLOW = 180.0
"""Seconds within which a machine that is busy has done what takes it some ten."""


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """An agent that looks often."""
    made = make_agent({"telemetry": {"interval": str(INTERVAL), "hardware_events": "false"}})
    made.start()
    return made


@pytest.fixture
def vm(agent: Agent, make_vm: MakeVm, wait_for: WaitFor) -> RunningVm:
    """A VM with two ways of its own."""
    made = make_vm(TWO, display_name="db-1")
    wait_for(lambda: settled(agent, made), "all tasks being in place", SLOW)
    return made


@pytest.fixture
def neighbour(agent: Agent, make_vm: MakeVm, wait_for: WaitFor) -> RunningVm:
    """Another one."""
    made = make_vm(TWO, display_name="web-1")
    wait_for(lambda: settled(agent, made), "all tasks being in place", SLOW)
    return made


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


def grown(agent: Agent, simulator: Simulator, vm: RunningVm, wait_for: WaitFor) -> subprocess.Popen[str]:
    """A command that has let the VM have a further way by now, and goes on for many seconds."""

    def has_more_or_ended(running: subprocess.Popen[str]) -> bool:
        return max(in_resctrl(simulator, vm)) > 2 or running.poll() is not None

    play(simulator, {vm.uuid: NEVER_ENOUGH})
    for _ in range(3):
        running = start(agent, "size", vm.uuid, "--yes")
        wait_for(functools.partial(has_more_or_ended, running), "a further way", SLOW)
        if running.poll() is None:
            return running
        said = running.communicate()
        assert LAPSED in said[1], said
    raise AssertionError(f"this machine stood still again and again: {said}")


def test_a_vm_gets_one_way_after_the_other_and_has_what_it_had_at_the_end(
    agent: Agent, simulator: Simulator, vm: RunningVm, neighbour: RunningVm, wait_for: WaitFor
) -> None:
    play(simulator, {vm.uuid: FITS, neighbour.uuid: AT_REST})
    before, layout, seen = free_ways(agent), groups(simulator), list[tuple[Any, Any]]()
    for _ in range(3):
        last = agent.get("/v1/events")["last"]
        running = start(agent, "size", vm.uuid, "--most", "4", "--yes", "-f", "json")
        while running.poll() is None:
            vms = {one["uuid"]: one for one in agent.get("/v1/vms")["vms"]}
            seen.append((vms[vm.uuid], vms[neighbour.uuid]))
            time.sleep(INTERVAL / 3)
        out, err = running.communicate()
        if LAPSED not in out + err:
            break
    assert running.returncode == 5, (out, err)
    assert err.splitlines() == [f"db-1 with {ways} ways ..." for ways in (2, 3, 4)]
    found = json.loads(out)
    assert (found["vm"], found["ways"], found["has"], found["tried"], found["ended"]) == (vm.uuid, 3, 2, 4, "")
    assert (found["counted"], found["extra_spec"]) == (False, "hw:cache_ways=3")
    assert [(one["ways"], one["traffic_part"]) for one in found["curve"]] == [(2, 1.0), (3, 0.0), (4, 0.0)]
    assert found["curve"][0]["traffic"] > 0
    (remembered,) = agent.get("/v1/sizes")["sizes"]
    assert (remembered["uuid"], remembered["ways"], remembered["counted"]) == (vm.uuid, 3, False)
    assert [(one["ways"], one["traffic_part"]) for one in remembered["curve"]] == [(2, 1.0), (3, 0.0), (4, 0.0)]
    for ours, theirs in seen:
        assert min(ways_of(ours)) >= 2 and ours["state"] == "kept"
        assert ways_of(theirs) == {2} and theirs["state"] == "kept"
    wait_for(lambda: ways_of(told(agent, vm)) == {2} and free_ways(agent) == before, "the ways being free again", SLOW)
    wait_for(lambda: groups(simulator) == layout, "each mask lying where it lay", SLOW)
    events = agent.get(f"/v1/events?after={last}")["events"]
    of_vm, of_neighbour = (
        [(one["state"], one["reason_code"]) for one in events if one["uuid"] == uuid and one["kind"] == "promise"]
        for uuid in (vm.uuid, neighbour.uuid)
    )
    assert of_vm == [("kept", "trial"), ("kept", "")] and not of_neighbour
    said = agent.log.read_text()
    for ways, what in ((2, "begins"), (3, "goes on"), (4, "goes on")):
        assert f"a trial on VM {vm.uuid} {what}: it has {ways} ways" in said
    assert f"a trial on VM {vm.uuid} goes on: it has 5 ways" not in said


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_ways_are_free_again_some_seconds_after_the_command_was_ended(
    number: signal.Signals,
    agent: Agent,
    simulator: Simulator,
    vm: RunningVm,
    neighbour: RunningVm,
    wait_for: WaitFor,
) -> None:
    before, layout = free_ways(agent), groups(simulator)
    running = grown(agent, simulator, vm, wait_for)
    running.send_signal(number)
    running.communicate(timeout=SLOW)
    wait_for(lambda: in_resctrl(simulator, vm) == {2}, "the ways being given back", SLOW)
    wait_for(lambda: ways_of(told(agent, vm)) == {2} and free_ways(agent) == before, "the ways being free again", SLOW)
    assert agent.get("/v1/health")["trial"] is None
    wait_for(
        lambda: settled(agent, vm, neighbour) and not told(agent, vm)["reason"], "the VM being told as before", SLOW
    )
    wait_for(lambda: groups(simulator) == layout, "each mask lying where it lay", SLOW)


@pytest.mark.parametrize("end", [Agent.kill, Agent.stop], ids=["killed", "stopped"])
def test_the_ways_are_free_again_once_the_agent_was_ended_and_started_again(
    end: Callable[[Agent], object], agent: Agent, simulator: Simulator, vm: RunningVm, wait_for: WaitFor
) -> None:
    before = free_ways(agent)
    running = grown(agent, simulator, vm, wait_for)
    end(agent)
    if end is Agent.stop:
        assert in_resctrl(simulator, vm) == {2}, "an agent that ends in an orderly way leaves no way behind"
    running.communicate(timeout=SLOW)
    agent.start()
    wait_for(lambda: in_resctrl(simulator, vm) == {2}, "the ways being given back", SLOW)
    wait_for(lambda: ways_of(told(agent, vm)) == {2} and free_ways(agent) == before, "the ways being free again", SLOW)
    assert agent.get("/v1/health")["trial"] is None


def test_a_vm_that_comes_meanwhile_has_what_it_is_promised(
    agent: Agent, simulator: Simulator, vm: RunningVm, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    (free,) = free_ways(agent)
    running = grown(agent, simulator, vm, wait_for)
    newcomer = make_vm({"hw:cache_ways": str(free)})
    wait_for(lambda: settled(agent, newcomer) and told(agent, newcomer)["state"] == "kept", "its ways", SLOW)
    vms = {one["uuid"]: one for one in agent.get("/v1/vms")["vms"]}
    assert ways_of(vms[newcomer.uuid]) == {free} and ways_of(vms[vm.uuid]) == {2}
    assert vms[newcomer.uuid]["state"] == vms[vm.uuid]["state"] == "kept"
    out, err = running.communicate(timeout=SLOW)
    assert in_resctrl(simulator, vm) == {2} and in_resctrl(simulator, newcomer) == {free}, (out, err)


def test_a_host_without_free_ways_is_refused(
    agent: Agent, simulator: Simulator, vm: RunningVm, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    (free,) = free_ways(agent)
    other = make_vm({"hw:cache_ways": str(free)})
    wait_for(lambda: settled(agent, other) and free_ways(agent) == {0}, "all ways being taken", SLOW)
    refused = vmqos(agent, "size", vm.uuid, "--yes")
    assert (refused.returncode, refused.stdout) == (1, "") and "no way is free on L3 cache 0 beside" in refused.stderr
    with pytest.raises(AgentRefused, match=f"nothing is tried on VM {vm.uuid}: has 2 of 3 ways on L3 cache 0"):
        AgentClient(str(agent.socket)).begin_trial(vm.uuid, "key", "hw:cache_ways=3")
    assert agent.get("/v1/health")["trial"] is None
    assert in_resctrl(simulator, vm) == {2} and in_resctrl(simulator, other) == {free}


def test_without_a_terminal_it_has_to_be_told_yes(agent: Agent, vm: RunningVm) -> None:
    asked = vmqos(agent, "size", vm.uuid)
    assert asked.returncode == 1 and "nothing was changed: there is no terminal to ask on; say --yes" in asked.stderr
    assert agent.get("/v1/health")["trial"] is None
