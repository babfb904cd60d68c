# SPDX-License-Identifier: Apache-2.0
"""``vmqos size`` of VMs without ways of their own: of one that is promised nothing, and of one in a class.

However it ends, they are where they were before.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass

import pytest

from tests.functional.cli.test_commands import vmqos
from tests.functional.conftest import MakeVm, WaitFor
from tests.functional.insight.sizing import SLOW, TWO, in_resctrl, run_watched, told, ways_of
from tests.functional.insight.sizing import agent as agent
from tests.functional.insight.test_confirm import groups, is_as_before, settled, steady_groups, trying
from tests.functional.insight.test_confirm import patient_agent as patient_agent
from tests.functional.insight.test_neighbours import AT_REST, MIB, play, samples_of
from tests.functional.insight.test_neighbours import simulator as simulator
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from tools.lab.vms import Flavor, RunningVm
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentRefused

SHARED = {**TWO, "hw:cache_policy": "shared"}
NEEDS_THREE = {"1": [1 * MIB, 9e8], "2": [2 * MIB, 8e8], "more": [3 * MIB, 0.0]}


@dataclass(frozen=True, slots=True)
class Kind:
    """What a VM is promised, what the operator has to say, and with how many ways the VM begins."""

    specs: dict[str, str]
    words: tuple[str, ...]
    first: int


@dataclass(frozen=True, slots=True)
class Three:
    """A VM, another one of the same flavor, and one with two ways of its own."""

    vm: RunningVm
    alike: RunningVm
    other: RunningVm

    @property
    def all(self) -> tuple[RunningVm, RunningVm, RunningVm]:
        return self.vm, self.alike, self.other


class Scene:
    """A host on which a VM is sized that has no ways of its own."""

    def __init__(self, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor, kind: Kind) -> None:
        self.simulator, self.wait_for, self.kind = simulator, wait_for, kind
        self._make_vm = make_vm

    def three(self, agent: Agent) -> Three:
        """Make the VMs, and wait until the agent has all their tasks in place."""
        specs = self.kind.specs
        made = (
            self._make_vm(specs, display_name="db-1"),
            self._make_vm(specs, display_name="db-2"),
            self._make_vm(TWO, display_name="web-1"),
        )
        self.wait_for(lambda: settled(agent, *made), "all tasks being in place", SLOW)
        return Three(*made)

    def has_own(self, vm: RunningVm) -> bool:
        """Whether a VM is in a control group of its own."""
        try:
            return bool((self.simulator.root / f"vmqos.{vm.uuid}" / "tasks").read_text().split())
        except FileNotFoundError:
            return False


@pytest.fixture(params=[Kind({}, ("--from", "1"), 1), Kind(SHARED, (), 2)], ids=["nothing promised", "in a class"])
def scene(simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor, request: pytest.FixtureRequest) -> Scene:
    """One for each kind of VM."""
    return Scene(simulator, make_vm, wait_for, request.param)


def test_a_vm_without_ways_of_its_own_has_some_one_after_the_other_and_is_where_it_was_at_the_end(
    patient_agent: Agent, scene: Scene
) -> None:
    agent, simulator, wait_for = patient_agent, scene.simulator, scene.wait_for
    kind, first = scene.kind, scene.kind.first
    vm, alike, other = scene.three(agent).all
    play(simulator, {vm.uuid: NEEDS_THREE, alike.uuid: AT_REST, other.uuid: AT_REST})
    if kind.words:
        refused = vmqos(agent, "size", vm.uuid, "--yes")
        assert (refused.returncode, refused.stdout) == (1, "") and "such as --from 1" in refused.stderr
        with pytest.raises(AgentRefused, match=r"may have fewer to fill, .* \(may_fill_fewer=true\)"):
            AgentClient(str(agent.socket)).begin_trial(vm.uuid, "key", "hw:cache_ways=1")
        assert agent.get("/v1/health")["trial"] is None
    before, told_before = steady_groups(agent, simulator, wait_for), told(agent, vm)
    last = agent.get("/v1/events")["last"]
    ended = run_watched(agent, "size", vm.uuid, *kind.words, "--most", "4", "--yes", "-f", "json")
    assert ended.status == 5, ended
    found = json.loads(ended.out)
    assert (found["ways"], found["has"], found["first"], found["tried"], found["more"]) == (3, 0, first, 4, 3)
    assert [one["ways"] for one in found["curve"]] == list(range(first, 5))
    (remembered,) = agent.get("/v1/sizes")["sizes"]
    assert remembered["uuid"] == vm.uuid and [one["ways"] for one in remembered["curve"]] == list(range(first, 5))
    own = f"vmqos.{vm.uuid}"
    assert {min(ways_of(vms[vm.uuid])) for vms in ended.seen if vms[vm.uuid]["group"] == own} >= {first, 4}
    for vms in ended.seen:
        assert [vms[one.uuid]["state"] for one in (vm, alike, other)] == [told_before["state"]] * 2 + ["kept"]
        assert ways_of(vms[other.uuid]) == {2}
        if kind.specs:
            assert min(ways_of(vms[vm.uuid])) >= 2 and ways_of(vms[alike.uuid]) == {2}
    wait_for(lambda: is_as_before(simulator, before), "everything being as before", SLOW)
    now = told(agent, vm)
    for field in ("state", "group", "masks", "reason", "outside_at_start", "outside_later"):
        assert now[field] == told_before[field], field
    events = [one for one in agent.get(f"/v1/events?after={last}")["events"] if one["kind"] == "promise"]
    state = told_before["state"]
    assert [(one["uuid"], one["state"], one["reason_code"]) for one in events] == [
        (vm.uuid, state, "trial"),
        (vm.uuid, state, ""),
    ]


def test_ways_that_have_no_room_for_what_a_vm_left_in_others_do_not_count(patient_agent: Agent, scene: Scene) -> None:
    agent, simulator, first = patient_agent, scene.simulator, scene.kind.first
    vm, alike, other = scene.three(agent).all
    left = {vm.uuid: {"1": [20 * MIB, 0.0], "2": [20 * MIB, 0.0], "more": [0.0, 0.0]}}
    play(simulator, {vm.uuid: NEEDS_THREE, alike.uuid: AT_REST, other.uuid: AT_REST, "left": left})
    ended = run_watched(agent, "size", vm.uuid, *scene.kind.words, "--most", "4", "--yes", "-f", "json")
    assert ended.status == 5, ended
    found = json.loads(ended.out)
    assert found["not_counted"] == list(range(first, 3)) and [one["ways"] for one in found["curve"]] == [3, 4]
    assert (found["first"], found["ways"], found["tried"]) == (3, 3, 4)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_vm_without_ways_of_its_own_is_where_it_was_some_seconds_after_the_command_was_ended(
    number: signal.Signals, agent: Agent, scene: Scene
) -> None:
    simulator, wait_for = scene.simulator, scene.wait_for
    vm, alike, other = scene.three(agent).all
    play(simulator, dict.fromkeys((vm.uuid, alike.uuid, other.uuid), AT_REST))
    before, told_before = steady_groups(agent, simulator, wait_for), told(agent, vm)
    arguments = ("size", vm.uuid, *scene.kind.words, "--yes")
    running = trying(agent, arguments, lambda: scene.has_own(vm), "ways of its own", wait_for, SLOW)
    assert in_resctrl(simulator, vm) == {scene.kind.first}
    running.send_signal(number)
    out, err = running.communicate(timeout=SLOW)
    assert (running.returncode, out) == (130 if number == signal.SIGINT else -number, ""), err
    wait_for(lambda: is_as_before(simulator, before), "everything being as before", SLOW)
    wait_for(lambda: settled(agent, vm, alike, other), "all tasks being in place", SLOW)
    now = told(agent, vm)
    assert (now["group"], now["state"], now["masks"]) == tuple(told_before[key] for key in ("group", "state", "masks"))
    assert agent.get("/v1/health")["trial"] is None


def test_a_vm_without_ways_of_its_own_is_where_it_was_once_the_agent_was_killed_and_started_again(
    agent: Agent, scene: Scene
) -> None:
    simulator, wait_for = scene.simulator, scene.wait_for
    vm, alike, other = scene.three(agent).all
    before = steady_groups(agent, simulator, wait_for)
    arguments = ("size", vm.uuid, *scene.kind.words, "--yes")
    running = trying(agent, arguments, lambda: scene.has_own(vm), "ways of its own", wait_for, SLOW)
    agent.kill()
    running.communicate(timeout=SLOW)
    assert running.returncode == 1
    agent.start()
    wait_for(lambda: groups(simulator).keys() == before.keys(), "the VM having no group of its own", SLOW)
    wait_for(lambda: settled(agent, vm, alike, other), "all tasks being in place", SLOW)
    where = {name: inside for name, (_, inside, _) in before.items()}
    wait_for(lambda: {name: one[1] for name, one in groups(simulator).items()} == where, "each in its place", SLOW)


def test_vms_of_a_flavor_without_ways_are_sized_one_after_the_other(
    patient_agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = patient_agent
    busy, idle = (make_vm(flavor=Flavor("m1.small", {}), display_name=name) for name in ("db-1", "web-1"))
    wait_for(lambda: settled(agent, busy, idle), "all tasks being in place", SLOW)
    play(simulator, {busy.uuid: NEEDS_THREE, idle.uuid: {"1": AT_REST, "more": AT_REST}})
    before = steady_groups(agent, simulator, wait_for)
    arguments = ("size", "--flavor", "m1.small", "--from", "1", "--most", "4", "--yes", "-f", "json")
    ended = run_watched(agent, *arguments)
    assert ended.status == 5, ended
    found = json.loads(ended.out)
    assert (found["ways"], found["has"], found["first"], found["more"]) == (3, 0, 1, 3)
    assert {one["vm"]: one["ways"] for one in found["vms"]} == {busy.uuid: 3, idle.uuid: 1}
    assert set(found["cost"].values()) == {6} and found["extra_spec"] == "hw:cache_ways=3"
    assert found["command"] == "vmqos flavor set m1.small --cache-ways 3"
    wait_for(lambda: is_as_before(simulator, before), "everything being as before", SLOW)


def test_without_a_trial_it_is_said_why_the_past_of_a_vm_tells_nothing(
    agent: Agent, scene: Scene, wait_for: WaitFor
) -> None:
    three, does = scene.three(agent), (3 * MIB, 8e8)
    before = groups(scene.simulator)
    play(scene.simulator, {three.vm.uuid: does})
    wait_for(lambda: samples_of(agent, three.vm, does) >= 4, "samples of what it does", SLOW)
    ran = vmqos(agent, "size", three.vm.uuid, "--passive")
    assert ran.returncode == 1 and "nothing counts its misses of the L3" in ran.stderr, ran
    assert "ways that it may fill" in ran.stderr
    own = vmqos(agent, "size", three.other.uuid, "--passive")
    assert own.returncode == 1 and "it has ways of its own" in own.stderr, own
    assert is_as_before(scene.simulator, before)
