# SPDX-License-Identifier: Apache-2.0
"""``vmqos size``: a VM is let have one more way after the other, on a simulator that plays what it does with each.

Whatever ends the command or the agent, and whoever needs the ways, they are free again some seconds later.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.functional.cli.test_commands import vmqos
from tests.functional.conftest import MakeVm, WaitFor
from tests.functional.insight.sizing import SLOW, TWO, free_ways, in_resctrl, run_watched, told, ways_of
from tests.functional.insight.sizing import agent as agent
from tests.functional.insight.test_confirm import LAPSED, groups, is_as_before, settled, start, trying
from tests.functional.insight.test_confirm import patient_agent as patient_agent
from tests.functional.insight.test_neighbours import AT_REST, MIB, play
from tests.functional.insight.test_neighbours import simulator as simulator
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from tools.lab.vms import Flavor, RunningVm
from vmqos.cli.size import stepping
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentRefused

FITS = {"2": [2 * MIB, 8e8], "more": [3 * MIB, 0.0]}
"""A VM that moves much with two ways, and nothing with three."""
NEVER_ENOUGH = {"2": [2 * MIB, 0.0], "more": [3 * MIB, [1e8, 9e8]]}
"""A VM that is soon known with two ways; with three it varies so much that it is watched for as long as may be."""


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


def grown(agent: Agent, simulator: Simulator, vm: RunningVm, wait_for: WaitFor) -> subprocess.Popen[str]:
    """A command that has let the VM have a further way by now, and goes on for many seconds."""

    play(simulator, {vm.uuid: NEVER_ENOUGH})
    arguments = ("size", vm.uuid, "--yes")
    return trying(agent, arguments, lambda: max(in_resctrl(simulator, vm)) > 2, "a further way", wait_for, SLOW)


def test_a_vm_gets_one_way_after_the_other_and_has_what_it_had_at_the_end(
    agent: Agent, simulator: Simulator, vm: RunningVm, neighbour: RunningVm, wait_for: WaitFor
) -> None:
    play(simulator, {vm.uuid: FITS, neighbour.uuid: AT_REST})
    before, layout, seen = free_ways(agent), groups(simulator), list[dict[str, Any]]()
    for _ in range(3):
        last = agent.get("/v1/events")["last"]
        ended = run_watched(agent, "size", vm.uuid, "--most", "4", "--yes", "-f", "json", is_patient=False)
        seen += ended.seen
        if LAPSED not in ended.out + ended.err:
            break
    assert ended.status == 5, ended
    assert ended.err.splitlines() == [f"db-1 with {ways} ways ..." for ways in (2, 3, 4)]
    found = json.loads(ended.out)
    assert (found["vm"], found["ways"], found["has"], found["tried"], found["ended"]) == (vm.uuid, 3, 2, 4, "")
    assert (found["counted"], found["extra_spec"]) == (False, "hw:cache_ways=3")
    assert [(one["ways"], one["traffic_part"]) for one in found["curve"]] == [(2, 1.0), (3, 0.0), (4, 0.0)]
    assert found["curve"][0]["traffic"] > 0
    (remembered,) = agent.get("/v1/sizes")["sizes"]
    assert (remembered["uuid"], remembered["ways"], remembered["counted"]) == (vm.uuid, 3, False)
    assert [(one["ways"], one["traffic_part"]) for one in remembered["curve"]] == [(2, 1.0), (3, 0.0), (4, 0.0)]
    for ours, theirs in ((vms[vm.uuid], vms[neighbour.uuid]) for vms in seen):
        assert min(ways_of(ours)) >= 2 and ours["state"] == "kept"
        assert ways_of(theirs) == {2} and theirs["state"] == "kept"
    wait_for(lambda: ways_of(told(agent, vm)) == {2} and free_ways(agent) == before, "the ways being free again", SLOW)
    wait_for(lambda: is_as_before(simulator, layout), "each mask lying where it lay", SLOW)
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
    wait_for(lambda: is_as_before(simulator, layout), "each mask lying where it lay", SLOW)


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


FLAVOR = "c2.cache2"
IDLE = {"2": AT_REST, "more": AT_REST}


@pytest.fixture
def of_flavor(
    patient_agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> tuple[RunningVm, RunningVm, RunningVm]:
    """Three VMs of a flavor: one that gains by a third way, one that gains nothing, and one that can't be sized."""
    busy, idle, other = (
        make_vm(flavor=Flavor(FLAVOR, specs), display_name=name)
        for name, specs in (("db-1", TWO), ("web-1", TWO), ("old-1", {}))
    )
    play(simulator, {busy.uuid: FITS, idle.uuid: IDLE, other.uuid: AT_REST})
    wait_for(lambda: settled(patient_agent, busy, idle, other), "all tasks being in place", SLOW)

    def moves(vm: RunningVm) -> list[float]:
        samples = patient_agent.get("/v1/neighbours/samples")["samples"].get(vm.uuid, [])
        return [one["bandwidth"] or 0.0 for one in samples[-6:]]

    wait_for(lambda: len(moves(busy)) == 6 and min(moves(busy)) > max(moves(idle)) > 0, "what they move", SLOW)
    return busy, idle, other


def test_the_vms_of_a_flavor_are_sized_one_after_the_other(
    patient_agent: Agent,
    simulator: Simulator,
    of_flavor: tuple[RunningVm, RunningVm, RunningVm],
    make_vm: MakeVm,
    wait_for: WaitFor,
) -> None:
    agent, neighbour, (busy, idle, other) = patient_agent, make_vm(TWO), of_flavor
    wait_for(lambda: settled(agent, neighbour), "all tasks being in place", SLOW)
    before, layout = free_ways(agent), groups(simulator)
    ended = run_watched(agent, "size", "--flavor", FLAVOR, "--most", "4", "--yes", "-f", "json")
    assert ended.status == 5, ended
    found = json.loads(ended.out)
    assert (found["flavor"], found["ways"], found["has"], found["fewer_do"], found["ended"]) == (FLAVOR, 3, 2, 1, "")
    assert [(one["vm"], one["ways"]) for one in found["vms"]] == [(busy.uuid, 3), (idle.uuid, 2)]
    assert found["not_sized"] == [{"vm": other.uuid, "reason": stepping.NO_WAYS}]
    assert found["running"] == 3 and found["command"] == f"vmqos flavor set {FLAVOR} --cache-ways 3"
    # Of the two with two ways each, and of the one without, on each cache.
    assert set(found["cost"].values()) == {1 + 1 + 3} and set(found["free"].values()) == before
    begins = [line for line in ended.err.splitlines() if line.endswith("is next.")]
    assert begins[0] == "2 of the flavor's VMs left, 30 min at most; db-1 is next."
    assert begins[1].startswith("1 of the flavor's VMs left, about ") and begins[1].endswith("; web-1 is next.")
    for vms in ended.seen:
        assert sum(ways_of(vms[one.uuid]) != {2} for one in (busy, idle)) <= 1, "one VM has more ways at a time"
        assert min(ways_of(vms[busy.uuid]) | ways_of(vms[idle.uuid])) >= 2 and ways_of(vms[neighbour.uuid]) == {2}
    for vm in (busy, idle):
        assert any(max(ways_of(vms[vm.uuid])) > 2 for vms in ended.seen)
    wait_for(lambda: free_ways(agent) == before, "the ways being free again", SLOW)
    wait_for(lambda: is_as_before(simulator, layout), "each mask lying where it lay", SLOW)


def test_ctrl_c_between_the_vms_of_a_flavor_prints_what_was_found_until_then(
    patient_agent: Agent,
    simulator: Simulator,
    of_flavor: tuple[RunningVm, RunningVm, RunningVm],
    wait_for: WaitFor,
) -> None:
    agent, (busy, idle, _) = patient_agent, of_flavor
    before, layout = free_ways(agent), groups(simulator)
    play(simulator, {busy.uuid: FITS, idle.uuid: NEVER_ENOUGH})
    running = start(agent, "size", "--flavor", FLAVOR, "--most", "4", "--yes", "-f", "json", is_patient=True)
    wait_for(lambda: max(in_resctrl(simulator, idle)) > 2 or running.poll() is not None, "the second VM's turn", SLOW)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=SLOW)
    assert running.returncode == 130, (out, err)
    found = json.loads(out)
    assert (found["ways"], [one["vm"] for one in found["vms"]], found["ended"]) == (3, [busy.uuid], "Ctrl-C")
    wait_for(lambda: in_resctrl(simulator, idle) == {2} and free_ways(agent) == before, "the ways being free", SLOW)
    wait_for(lambda: is_as_before(simulator, layout), "each mask lying where it lay", SLOW)
