# SPDX-License-Identifier: Apache-2.0
"""The agent and OpenStack through the gateway: who learns what, and what happens while one of them is away."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.unit.agent.serve.test_vms import snapshot
from tests.unit.eventually import eventually
from tests.unit.gateway.openstack.test_flavors import SPECS, Nova
from tests.unit.gateway.openstack.test_placement import CREDENTIALS, Notes, configured
from tests.unit.gateway.played_agent import CAPACITY, PlayedAgent, wanted
from vmqos.agent.observe.told_flavors import Found, ToldFlavors
from vmqos.agent.serve.api import Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.allocation import Policy
from vmqos.conf.exceptions import ConfigurationError
from vmqos.daemon.backoff import Backoff
from vmqos.daemon.unix_server import UnixServer
from vmqos.extra_specs.resources import LLC_WAYS
from vmqos.gateway.openstack import openstack_sync, placement
from vmqos.gateway.openstack.capacity import NOTHING, Capacity
from vmqos.gateway.openstack.flavors import FlavorLookup
from vmqos.gateway.openstack.openstack_sync import OpenStackSync
from vmqos.gateway.openstack.placement import PlacementSync
from vmqos.hypervisor.model import NovaMetadata, Process, VirtualMachine
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentFailed, AgentHungUp, AgentNotRunning, AgentRefused, AgentTimeout, NotOurApi
from vmqos.openstack.exceptions import Unreachable

AWAY = AgentNotRunning(socket="/run/vmqos/gateway.sock")
HOST = replace(Capacity.of(CAPACITY), held=0)
"""What a target is told that asks for what VMs hold."""


@pytest.fixture(autouse=True)
def hurries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "SETTLES", 0.04)
    monkeypatch.setattr(openstack_sync, "PERIOD", 0.04)


@pytest.fixture
def agent() -> PlayedAgent:
    return PlayedAgent()


@pytest.fixture
def notes() -> Iterator[Notes]:
    notes = Notes()
    yield notes
    notes.gate.set()


@pytest.fixture
def nova() -> Nova:
    return Nova()


@pytest.fixture
def make(agent: PlayedAgent, notes: Notes, nova: Nova) -> Iterator[Callable[..., OpenStackSync]]:
    made: list[OpenStackSync] = []

    def start(hostname: str | None = None, check_interval: float = 3600.0, asked: Any = agent) -> OpenStackSync:
        tells = PlacementSync(notes, check_interval, Backoff(0.01, 0.05))
        asks = FlavorLookup(nova, asked, Backoff(0.01, 0.05))  # type: ignore[arg-type]
        made.append(OpenStackSync(asked, tells, asks, hostname))
        made[-1].start()
        return made[-1]

    yield start
    for sync in made:
        sync.stop()


def told(sync: OpenStackSync) -> bool:
    health = sync.placement()
    assert health is not None
    return bool(health["told_at"])


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == openstack_sync.__name__]


def test_placement_is_told_what_the_agent_says_and_the_agent_what_nova_says(
    make: Callable[..., OpenStackSync], agent: PlayedAgent, notes: Notes, nova: Nova
) -> None:
    nova.servers["a"] = SPECS
    agent.wants = [wanted("a")]
    sync = make()
    eventually(lambda: told(sync) and agent.flavors)
    assert (notes.told, notes.hostnames, agent.flavors) == ([HOST], ["node-1"], {"a": SPECS})
    assert CAPACITY["held"] == 4, "which this target asks for itself"
    eventually(lambda: sync.nova() == {"error": None, "waiting": 0})


def test_a_change_on_the_host_is_told(make: Callable[..., OpenStackSync], agent: PlayedAgent, notes: Notes) -> None:
    sync = make()
    eventually(lambda: told(sync))
    agent.capacity = {**CAPACITY, "ways": 6}
    eventually(lambda: notes.told == [HOST, replace(HOST, ways=6)])


def test_a_change_is_looked_at_again_before_it_is_told(
    make: Callable[..., OpenStackSync], agent: PlayedAgent, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = make()
    eventually(lambda: told(sync))
    settling, offered, pauses = threading.Semaphore(0), list[int | None](), list[float | None]()
    openstack, settle, wait_for = agent.openstack, PlacementSync._settle, sync._worker.condition.wait_for

    def answers() -> Any:
        answer = openstack()
        capacity = answer["capacity"]
        offered.append(capacity and capacity["ways"])
        # As it is in truth: the period is longer than the time that a change settles in.
        monkeypatch.setattr(openstack_sync, "PERIOD", 3600.0 if offered[-1] == 6 else 0.04)
        return answer

    def settles(tells: PlacementSync) -> bool:
        # However long this machine has no CPU for the question: that it comes sooner is what the pauses tell.
        settling.release()
        eventually(lambda: tells._known and tells._known.capacity != replace(HOST, ways=6))
        return settle(tells)

    def waits(ends: Callable[[], bool], pause: float | None = None) -> bool:
        pauses.append(pause if offered[-1:] == [6] else None)
        return wait_for(ends, pause)

    monkeypatch.setattr(agent, "openstack", answers)
    monkeypatch.setattr(sync._worker.condition, "wait_for", waits)
    monkeypatch.setattr(PlacementSync, "_settle", settles)
    eventually(lambda: offered)
    # After one answer the pass that made a group has filled it.
    agent.once = {**CAPACITY, "ways": 6}
    assert settling.acquire(timeout=60)
    eventually(lambda: offered[-1] != 6)
    agent.capacity = {**CAPACITY, "ways": 7}
    eventually(lambda: len(notes.told) > 1)
    assert notes.told == [HOST, replace(HOST, ways=7)], "the change that was undone was not told"
    (pause,) = (pause for pause in pauses if pause is not None)
    assert pause < placement.SETTLES


def test_the_configured_name_goes_before_libvirt_s(make: Callable[..., OpenStackSync], notes: Notes) -> None:
    sync = make(hostname="configured")
    eventually(lambda: told(sync))
    assert notes.hostnames == ["configured"]


def test_nothing_is_told_while_the_agent_is_away_and_the_log_of_that_is_for_who_watches_it(
    make: Callable[..., OpenStackSync],
    agent: PlayedAgent,
    notes: Notes,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "WITHOUT_RESCTRL", 0.1)
    caplog.set_level(logging.INFO, "vmqos")
    agent.failure = AWAY
    sync = make()
    eventually(lambda: agent.asked > 5)
    assert notes.told == [] and sync.placement() is not None
    agent.failure = None
    eventually(lambda: told(sync))
    agent.failure = AWAY
    agent.capacity = None
    asked = agent.asked
    eventually(lambda: agent.asked > asked + 10)
    assert notes.told == [HOST]
    agent.failure, agent.capacity = None, CAPACITY
    eventually(lambda: len(notes.told) == 2)
    assert lines(caplog) == []


@pytest.mark.parametrize(
    "failure",
    [
        AgentRefused(text="there is no /v1/openstack here", status=404),
        AgentFailed(text="it is broken", status=500),
        NotOurApi(socket="/run/vmqos/gateway.sock", problem="/v1/openstack is no JSON (HTTP 500)"),
        AgentTimeout(socket="/run/vmqos/gateway.sock", seconds=10),
    ],
)
def test_an_agent_that_answers_everything_but_this_is_logged_once(
    make: Callable[..., OpenStackSync], agent: PlayedAgent, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    """Its health is as ever, so that who watches the agent has nothing to say."""
    caplog.set_level(logging.INFO, "vmqos")
    agent.failure = failure
    sync = make()
    eventually(lambda: agent.asked > 5)
    (line,) = lines(caplog)
    assert line.startswith("OpenStack is told nothing new of this host") and str(failure) in line
    for health in (sync.placement(), sync.nova()):
        assert health is not None and health["error"] == line
    agent.failure = None
    eventually(lambda: told(sync))
    assert lines(caplog)[1:] == ["OpenStack is told of this host again"]
    for health in (sync.placement(), sync.nova()):
        assert health is not None and health["error"] is None


@pytest.mark.parametrize(
    "failure", [AgentTimeout(socket="gateway.sock", seconds=9), AgentHungUp(socket="gateway.sock"), KeyError("uuid")]
)
def test_an_agent_that_can_not_be_told_flavors_keeps_placement_from_nothing(
    make: Callable[..., OpenStackSync],
    agent: PlayedAgent,
    notes: Notes,
    nova: Nova,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
) -> None:
    caplog.set_level(logging.INFO, "vmqos")
    nova.servers["a"] = SPECS
    agent.wants, agent.refuses = [wanted("a")], {"a": failure}
    sync = make()
    eventually(lambda: lines(caplog))
    (line,) = lines(caplog)
    assert line.startswith("the agent can't be told flavors") and str(failure) in line
    placement_health, nova_health = sync.placement(), sync.nova()
    assert placement_health is not None and nova_health is not None
    assert (placement_health["error"], nova_health["error"]) == (None, line)
    agent.capacity = {**CAPACITY, "ways": 8}
    eventually(lambda: notes.told[-1:] == [replace(HOST, ways=8)])
    agent.refuses = {}
    eventually(lambda: agent.flavors == {"a": SPECS} and sync.nova() == {"error": None, "waiting": 0})
    eventually(lambda: lines(caplog)[1:] == ["the agent is told flavors again"])


def test_what_was_withdrawn_while_the_agent_was_away_is_told_again_at_once(
    make: Callable[..., OpenStackSync], agent: PlayedAgent, notes: Notes
) -> None:
    sync = make()
    eventually(lambda: told(sync))
    agent.failure = AWAY
    asked = agent.asked
    eventually(lambda: agent.asked > asked + 2)
    # A timer on the host ran 'vmqos placement withdraw' now; the capacity is what it was.
    agent.failure = None
    eventually(lambda: len(notes.told) == 2)
    time.sleep(0.2)
    assert notes.told == [HOST, HOST]


def test_an_agent_that_lost_resctrl_for_long_has_nothing_to_promise(
    make: Callable[..., OpenStackSync], agent: PlayedAgent, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "WITHOUT_RESCTRL", 0.5)
    sync = make()
    eventually(lambda: told(sync))
    lost = time.monotonic()
    agent.capacity = None
    eventually(lambda: notes.told == [HOST, NOTHING])
    assert notes.times[1] - lost >= 0.5, "it may just be mounted anew"
    agent.capacity = CAPACITY
    eventually(lambda: notes.told == [HOST, NOTHING, HOST])


def test_a_nova_that_is_away_is_told_to_the_agent_and_again_to_one_that_comes_back(
    make: Callable[..., OpenStackSync], agent: PlayedAgent, nova: Nova
) -> None:
    nova.servers["a"] = Unreachable("nova", "refused")
    agent.wants = [wanted("a")]
    sync = make()
    eventually(lambda: agent.errors)
    assert agent.errors[0] == ("a", "Nova can't be reached: refused")
    health = sync.nova()
    assert health == {"error": "Nova can't be reached: refused", "waiting": 1}
    agent.failure = AWAY
    asked = agent.asked
    eventually(lambda: agent.asked > asked + 2)
    agent.errors.clear()
    agent.failure = None
    eventually(lambda: agent.errors)
    nova.servers["a"] = SPECS
    eventually(lambda: agent.flavors == {"a": SPECS})


@pytest.mark.parametrize("capacity", [{}, {**CAPACITY, "offered": 3}, [], "much"], ids=str)
def test_an_answer_that_is_not_understood_changes_nothing(
    make: Callable[..., OpenStackSync],
    agent: PlayedAgent,
    notes: Notes,
    caplog: pytest.LogCaptureFixture,
    capacity: Any,
) -> None:
    sync = make()
    eventually(lambda: told(sync))
    agent.capacity = capacity
    asked = agent.asked
    eventually(lambda: agent.asked > asked + 10)
    assert notes.told == [HOST]
    assert len(lines(caplog)) == 1
    agent.capacity = CAPACITY
    eventually(lambda: notes.told == [HOST, HOST])


def test_with_nothing_configured_the_agent_is_not_asked_and_no_thread_runs(tmp_path: Path, agent: Any) -> None:
    sync = OpenStackSync.of(configured(tmp_path, "[placement]\nregion_name = RegionOne\n"), agent)
    # Those of a test before this one may end meanwhile.
    threads = set(threading.enumerate())
    sync.start()
    assert set(threading.enumerate()) <= threads
    assert (sync.placement(), sync.nova(), sync.notifications(), agent.asked) == (None, None, None, 0)
    sync.stop()


def test_each_of_the_two_is_there_where_it_is_configured(tmp_path: Path, agent: Any) -> None:
    by_file = OpenStackSync.of(configured(tmp_path, f"[placement]\nprovider_yaml = {tmp_path / 'p.yaml'}\n"), agent)
    assert by_file.placement() is not None and by_file.nova() is None
    by_nova = OpenStackSync.of(configured(tmp_path, f"[nova]\n{CREDENTIALS}"), agent)
    assert by_nova.placement() is None and by_nova.nova() == {"error": None, "waiting": 0}
    with pytest.raises(ConfigurationError, match="counted twice"):
        OpenStackSync.of(configured(tmp_path, f"[placement]\n{CREDENTIALS}provider_yaml = p.yaml\n"), agent)


def test_notifications_are_sent_where_a_broker_is_configured_though_openstack_is_told_nothing(
    tmp_path: Path, agent: PlayedAgent
) -> None:
    text = f"[notifications]\ntransport_url = rabbit://127.0.0.1:9/\nposition_file = {tmp_path / 'position.json'}\n"
    asked = threading.Event()

    def events(after: int, epoch: str = "") -> Any:
        asked.set()
        raise AgentNotRunning(socket="agent.sock")

    sync = OpenStackSync.of(configured(tmp_path, text), SimpleNamespace(events=events))  # type: ignore[arg-type]
    told = sync.notifications()
    assert told is not None and told["where"] == "rabbit://127.0.0.1:9/"
    sync.start()
    assert asked.wait(60)
    began = time.monotonic()
    sync.stop()
    assert time.monotonic() - began < 30


def test_it_ends_soon_while_placement_does_not_answer(make: Callable[..., OpenStackSync], notes: Notes) -> None:
    notes.gate.clear()
    sync = make()
    eventually(lambda: notes.told)
    threading.Timer(0.2, notes.gate.set).start()
    began = time.monotonic()
    sync.stop()
    assert time.monotonic() - began < 10
    assert len(notes.told) == 1


UUID = "38c43823-3651-469c-b344-166d1c87d77b"


def test_over_the_agent_s_own_api_on_a_unix_socket(tmp_path: Path, nova: Nova) -> None:
    """The agent's API as it is, asked by the client as it is; the agent goes and comes back."""
    vm = VirtualMachine(UUID, "instance-1", 1, Process(7, 100), None, False, NovaMetadata("gold", "w2", "p", None))
    flavors = ToldFlavors(True, lambda uuid: None)
    flavors.look_up([vm])
    nova.servers[UUID] = Unreachable("nova", "refused")
    played = SimpleNamespace(snapshot=snapshot(), flavors=flavors, hostname="node-1")
    socket, written = tmp_path / "gateway.sock", tmp_path / "provider.yaml"

    def serve() -> UnixServer:
        api = Api(played, None, LiveReads(), {os.geteuid()})  # type: ignore[arg-type]
        server = UnixServer(api, "[gateway] agent_socket", str(socket), mode="600")
        server.start()
        return server

    def ways() -> Any:
        (provider,) = yaml.safe_load(written.read_text())["providers"]
        (found,) = (one[LLC_WAYS] for one in provider["inventories"]["additional"] if LLC_WAYS in one)
        return found["total"], found["max_unit"]

    client = AgentClient(str(socket))
    tells = PlacementSync.of(configured(tmp_path, f"[placement]\nprovider_yaml = {written}\n"))
    sync = OpenStackSync(client, tells, FlavorLookup(nova, client, Backoff(0.01, 0.05)))  # type: ignore[arg-type]
    sync.start()
    server = serve()
    try:
        eventually(written.exists)
        assert ways() == (9, 9)
        eventually(lambda: flavors.look_up([vm]) == {UUID: Found(None, "Nova can't be reached: refused")})
        nova.servers[UUID] = SPECS
        eventually(lambda: flavors.look_up([vm]) == {UUID: Found(SPECS)})

        server.stop()
        written.unlink()
        played.snapshot = replace(snapshot(), policy=Policy(default_ways_min=8))
        flavors = played.flavors = ToldFlavors(True, lambda uuid: None)
        flavors.look_up([vm])
        time.sleep(0.3)
        assert not written.exists()
        server = serve()
        eventually(written.exists)
        # The VM with 4 ways runs still, and no other one can have as many.
        assert ways() == (3, 4)
        eventually(lambda: flavors.look_up([vm]) == {UUID: Found(SPECS)})
    finally:
        sync.stop()
        server.stop()


def test_the_end_waits_for_all_that_hangs_at_once(
    make: Callable[..., OpenStackSync], notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd kills a gateway that takes longer than TimeoutStopSec, and its unit has failed then."""
    released = threading.Event()

    class Hangs(PlayedAgent):
        def openstack(self) -> Any:
            assert released.wait(60)
            return super().openstack()

    notes.gate.clear()
    sync = make(asked=Hangs())
    assert sync._placement is not None
    sync._placement.offer(HOST, "node-1")
    eventually(lambda: notes.told)
    # Each of the two waits begins once the other one has begun: one after the other, they never would.
    both, met = threading.Barrier(2), list[object]()
    for worker in (sync._worker, sync._placement._worker):
        worker._patience = 0.1
        stop = worker.stop

        def stop_together(stop: Callable[[], None] = stop) -> None:
            both.wait(60)
            met.append(stop)
            stop()

        monkeypatch.setattr(worker, "stop", stop_together)
    sync.stop()
    assert len(met) == 2 and not released.is_set()
    released.set()
    notes.gate.set()
