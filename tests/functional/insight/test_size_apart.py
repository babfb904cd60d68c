# SPDX-License-Identifier: Apache-2.0
"""``vmqos size`` of VMs with ways for code and for data apart: the ones are tried while the others stay as they are."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.functional.cli.test_commands import vmqos
from tests.functional.conftest import MakeVm, WaitFor
from tests.functional.insight.sizing import SLOW, free_ways, run_watched, told
from tests.functional.insight.sizing import agent as agent
from tests.functional.insight.test_confirm import groups, is_as_before, settled, trying
from tests.functional.insight.test_confirm import patient_agent as patient_agent
from tests.functional.insight.test_neighbours import AT_REST, MIB, play
from tests.functional.insight.test_neighbours import simulator as simulator
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from tools.lab.vms import RunningVm

pytestmark = pytest.mark.parametrize("simulator", [("sapphire-rapids", "cdp")], indirect=True)

APART = {"hw:cache_code_ways": "2", "hw:cache_data_ways": "2"}
FITS = {
    "data": {"2+2": [2 * MIB, 8e8], "2+3": [3 * MIB, 4e8], "more": [4 * MIB, 0.0]},
    "code": {"2+2": [2 * MIB, 8e8], "3+2": [3 * MIB, 7.9e8], "more": [3 * MIB, 7.8e8]},
}
"""A VM that fits with four ways for data, and to which further ones for code are nothing."""
NEVER_ENOUGH = {"2+2": [2 * MIB, 0.0], "more": [3 * MIB, [1e8, 9e8]]}


def parts_in_resctrl(simulator: Simulator, vm: RunningVm) -> tuple[set[int], set[int]]:
    """How many ways the VM's control group has for code, and for data, on any cache."""
    text = (simulator.root / f"vmqos.{vm.uuid}" / "schemata").read_text()
    lines = dict(line.strip().split(":", 1) for line in text.splitlines())
    code, data = (
        {int(part.partition("=")[2], 16).bit_count() for part in lines[name].split(";")}
        for name in ("L3CODE", "L3DATA")
    )
    return code, data


def parts_of(vm: Any) -> tuple[set[int], set[int]]:
    """How many ways the agent says that a VM has for code, and for data, on any cache."""
    code, data = ({int(mask, 16).bit_count() for mask in vm[f"{part}_masks"].values()} for part in ("code", "data"))
    return code, data


def made(agent: Agent, make_vm: MakeVm, wait_for: WaitFor) -> tuple[RunningVm, RunningVm]:
    """Two VMs with two ways for code and two for data each."""
    vms = make_vm(APART, display_name="jit-1"), make_vm(APART, display_name="jit-2")
    wait_for(lambda: settled(agent, *vms), "all tasks being in place", SLOW)
    return vms


@pytest.mark.parametrize(("part", "needs"), [("data", 4), ("code", 2)])
def test_ways_for_data_or_for_code_are_tried_one_after_the_other_and_all_is_as_before_at_the_end(
    part: str, needs: int, patient_agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = patient_agent
    vm, neighbour = made(agent, make_vm, wait_for)
    play(simulator, {vm.uuid: FITS[part], neighbour.uuid: AT_REST})
    before, layout = free_ways(agent), groups(simulator)
    ended = run_watched(agent, "size", vm.uuid, "--part", part, "--most", "5", "--yes", "-f", "json")
    assert ended.status == 5, ended
    assert ended.err.splitlines()[:4] == [f"jit-1 with {ways} ways for {part} ..." for ways in (2, 3, 4, 5)]
    found = json.loads(ended.out)
    assert (found["ways"], found["has"], found["part"], found["other_ways"]) == (needs, 2, part, 2)
    assert [one["ways"] for one in found["curve"]] == [2, 3, 4, 5]
    assert found["extra_spec"] == f"hw:cache_{part}_ways={needs}"
    (remembered,) = agent.get("/v1/sizes")["sizes"]
    assert (remembered["uuid"], remembered["ways"], remembered["part"]) == (vm.uuid, needs, part)
    tried = set()
    for ours, theirs in ((vms[vm.uuid], vms[neighbour.uuid]) for vms in ended.seen):
        code, data = parts_of(ours)
        tried |= data if part == "data" else code
        assert (code if part == "data" else data) == {2} and ours["state"] == theirs["state"] == "kept"
        assert parts_of(theirs) == ({2}, {2})
    assert tried == {2, 3, 4, 5}
    wait_for(lambda: parts_in_resctrl(simulator, vm) == ({2}, {2}), "the ways being given back", SLOW)
    wait_for(
        lambda: free_ways(agent) == before and is_as_before(simulator, layout), "each mask lying where it lay", SLOW
    )


@pytest.mark.parametrize("end", ["the command is killed", "Ctrl-C", "the agent is killed"])
def test_however_it_ends_a_vm_has_its_ways_for_code_and_data_again(
    end: str, agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm, neighbour = made(agent, make_vm, wait_for)
    play(simulator, {vm.uuid: NEVER_ENOUGH, neighbour.uuid: AT_REST})
    before, layout = free_ways(agent), groups(simulator)
    arguments = ("size", vm.uuid, "--yes")
    running = trying(
        agent, arguments, lambda: parts_in_resctrl(simulator, vm) == ({2}, {3}), "a further way", wait_for, SLOW
    )
    if end == "the agent is killed":
        agent.kill()
        running.communicate(timeout=SLOW)
        agent.start()
    else:
        running.send_signal(signal.SIGKILL if end == "the command is killed" else signal.SIGINT)
        running.communicate(timeout=SLOW)
    wait_for(lambda: parts_in_resctrl(simulator, vm) == ({2}, {2}), "the ways being given back", SLOW)
    wait_for(lambda: settled(agent, vm, neighbour) and free_ways(agent) == before, "the ways being free again", SLOW)
    assert agent.get("/v1/health")["trial"] is None and not told(agent, vm)["reason"]
    if end != "the agent is killed":
        wait_for(lambda: is_as_before(simulator, layout), "each mask lying where it lay", SLOW)


def test_a_vm_with_ways_for_some_of_its_vcpus_is_refused_with_what_to_do_instead(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm({"hw:cache_ways": "2", "hw:cache_vcpus": "0"}, display_name="rt-1")
    wait_for(lambda: settled(agent, vm), "all tasks being in place", SLOW)
    refused = vmqos(agent, "size", vm.uuid, "--yes")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "rt-1 can't be sized: its flavor has ways for some of its vCPUs" in refused.stderr
    assert "whose flavor has the ways for all vCPUs" in " ".join(refused.stderr.split())
    assert agent.get("/v1/health")["trial"] is None
