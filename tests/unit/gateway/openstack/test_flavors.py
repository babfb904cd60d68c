# SPDX-License-Identifier: Apache-2.0
"""The thread that asks Nova, beside a Nova that is one function; the real one has its tests with real servers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.eventually import eventually
from tests.unit.gateway.played_agent import PlayedAgent, wanted
from vmqos.conf import loader
from vmqos.daemon.backoff import Backoff
from vmqos.gateway.openstack import flavors
from vmqos.gateway.openstack.flavors import FlavorLookup
from vmqos.local_api.exceptions import AgentFailed, AgentNotRunning, AgentRefused, LocalApiError, NotOurApi
from vmqos.openstack.exceptions import FlavorHidden, Refused, ServerUnknown, Unreachable

SPECS = {"hw:cache_ways": "2"}


class Nova:
    """What the questions are answered with; an exception is raised."""

    def __init__(self) -> None:
        self.listing: Any = {}
        self.servers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def extra_specs_of_host(self, hostname: str) -> Any:
        return self._answer(f"host {hostname}", self.listing)

    def extra_specs(self, uuid: str) -> Any:
        return self._answer(uuid, self.servers.get(uuid, ServerUnknown(uuid)))

    def _answer(self, question: str, answer: Any) -> Any:
        self.asked.append(question)
        assert self.gate.wait(60)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def nova() -> Nova:
    return Nova()


@pytest.fixture
def agent() -> PlayedAgent:
    return PlayedAgent()


def made(nova: Nova, agent: PlayedAgent, backoff: Backoff) -> FlavorLookup:
    lookup = FlavorLookup(nova, agent, backoff)  # type: ignore[arg-type]
    lookup.start()
    return lookup


@pytest.fixture
def lookup(nova: Nova, agent: PlayedAgent) -> Iterator[FlavorLookup]:
    lookup = made(nova, agent, Backoff(0.01, 0.05))
    yield lookup
    nova.gate.set()
    lookup.stop()


@pytest.fixture
def exchange(lookup: FlavorLookup, agent: PlayedAgent) -> Callable[[], None]:
    """Hands over what the agent wants now, as the gateway does each second."""
    return lambda: lookup.answer(agent.openstack()["flavors_wanted"], agent.hostname)


@pytest.fixture
def until(exchange: Callable[[], None]) -> Callable[[Callable[[], object]], None]:
    """Hands over what the agent wants until something is so."""

    def is_so(condition: Callable[[], object]) -> bool:
        exchange()
        return bool(condition())

    return lambda condition: eventually(lambda: is_so(condition))


def test_what_the_agent_wants_is_asked_of_nova_once_and_told(
    lookup: FlavorLookup, nova: Nova, agent: PlayedAgent, exchange: Callable[[], None], until: Callable[..., None]
) -> None:
    nova.servers["a"] = {**SPECS, "hw:cpu_policy": "shared", "hw:cache_way": "3"}
    agent.wants = [wanted("a")]
    exchange()
    assert agent.flavors == {} and lookup.health == {"error": None, "waiting": 1}
    until(lambda: agent.flavors)
    # A misspelt key is the agent's to complain of; what has nothing to do with caches is not its business.
    assert agent.flavors == {"a": {**SPECS, "hw:cache_way": "3"}}
    exchange()
    assert (nova.asked, agent.errors, lookup.health) == (["a"], [], {"error": None, "waiting": 0})


def test_an_answer_is_forgotten_once_the_agent_has_it(
    nova: Nova, agent: PlayedAgent, exchange: Callable[[], None], until: Callable[..., None]
) -> None:
    nova.servers["a"] = SPECS
    agent.wants = [wanted("a")]
    until(lambda: agent.flavors == {"a": SPECS})
    exchange()
    # The VM has been started anew, with another flavor.
    nova.servers["a"] = {}
    agent.wants = [wanted("a", "2-2")]
    until(lambda: agent.flavors == {"a": {}})
    assert nova.asked == ["a", "a"]


def test_an_agent_that_was_started_anew_and_wants_it_again_is_told_again(
    nova: Nova, agent: PlayedAgent, lookup: FlavorLookup, until: Callable[..., None]
) -> None:
    nova.servers["a"] = SPECS
    agent.wants = [wanted("a")]
    until(lambda: agent.flavors)
    lookup.agent_is_away()
    agent.flavors.clear()
    agent.wants = [wanted("a")]
    until(lambda: agent.flavors == {"a": SPECS})


def test_an_answer_waits_for_an_agent_that_is_away(
    nova: Nova, agent: PlayedAgent, lookup: FlavorLookup, exchange: Callable[[], None]
) -> None:
    nova.servers["a"] = SPECS
    agent.wants = [wanted("a")]
    exchange()
    eventually(lambda: lookup.health["waiting"] == 0)
    agent.failure = AgentNotRunning(socket="agent.sock")
    with pytest.raises(AgentNotRunning):
        lookup.answer([wanted("a")], "node-1")
    assert lookup.health == {"error": None, "waiting": 0}, "this is no error of Nova's"
    lookup.agent_is_away()
    agent.failure = None
    exchange()
    assert agent.flavors == {"a": SPECS} and nova.asked == ["a"]


def test_several_vms_take_one_question(nova: Nova, agent: PlayedAgent, until: Callable[..., None]) -> None:
    nova.listing = {"a": SPECS, "b": {}, "c": {"x": "y"}}
    agent.wants = [wanted("a"), wanted("b")]
    until(lambda: not agent.wants)
    assert nova.asked == ["host node-1"]
    assert agent.flavors == {"a": SPECS, "b": {}}


def test_a_vm_that_is_still_another_host_s_is_asked_for_by_itself(
    nova: Nova, agent: PlayedAgent, until: Callable[..., None]
) -> None:
    nova.listing, nova.servers = {"a": SPECS}, {"migrating": SPECS}
    agent.wants = [wanted("a"), wanted("migrating")]
    until(lambda: not agent.wants)
    assert nova.asked == ["host node-1", "migrating"]


def test_without_the_right_to_list_they_are_asked_for_one_by_one_for_a_while(
    nova: Nova, agent: PlayedAgent, until: Callable[..., None]
) -> None:
    nova.listing = Refused("nova", "GET /servers/detail", 403, "policy")
    nova.servers = dict.fromkeys("abcd", SPECS)
    agent.wants = [wanted("a"), wanted("b")]
    until(lambda: not agent.wants)
    agent.wants = [wanted("c"), wanted("d")]
    until(lambda: not agent.wants)
    assert nova.asked == ["host node-1", "a", "b", "c", "d"]


def test_the_right_to_list_that_is_given_later_is_used(
    nova: Nova,
    agent: PlayedAgent,
    until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(flavors, "LISTS_AGAIN_AFTER", 0.0)
    caplog.set_level(logging.INFO, flavors.__name__)
    nova.listing = Refused("nova", "GET /servers/detail", 403, "policy")
    nova.servers = dict.fromkeys("ab", SPECS)
    agent.wants = [wanted("a"), wanted("b")]
    until(lambda: not agent.wants)
    nova.listing = dict.fromkeys("cd", SPECS)
    agent.wants = [wanted("c"), wanted("d")]
    until(lambda: not agent.wants)
    assert nova.asked == ["host node-1", "a", "b", "host node-1"]
    assert "the servers of this host are asked for at once again" in caplog.text


def test_a_server_that_nova_does_not_know_keeps_no_other_waiting(
    nova: Nova, agent: PlayedAgent, until: Callable[..., None]
) -> None:
    nova.servers["b"] = SPECS
    agent.wants = [wanted("a"), wanted("b")]
    until(lambda: agent.flavors == {"b": SPECS})
    until(lambda: [uuid for uuid, why in agent.errors if "knows no server a" in why] == ["a"])
    nova.servers["a"] = SPECS
    until(lambda: not agent.wants)


def test_a_flavor_that_is_not_shown_keeps_no_other_server_waiting(
    lookup: FlavorLookup, nova: Nova, agent: PlayedAgent, until: Callable[..., None]
) -> None:
    nova.servers = {"hidden": FlavorHidden("hidden"), "shown": SPECS}
    agent.wants = [wanted("hidden"), wanted("shown")]
    until(lambda: agent.flavors == {"shown": SPECS} and agent.errors)
    assert {uuid for uuid, why in agent.errors if "os_compute_api:servers:show:flavor-extra-specs" in why} == {"hidden"}
    # Where none is shown, that is worth telling of Nova.
    until(lambda: "does not show the extra specs" in (lookup.health["error"] or ""))


@pytest.mark.parametrize(
    "listing",
    [{}, KeyError("id"), Refused("nova", "GET /servers/detail", 0, "not of the form")],
    ids=["not listed", "unreadable list", "list of another form"],
)
def test_an_answer_that_is_not_understood_is_its_vm_s_alone(
    lookup: FlavorLookup,
    nova: Nova,
    agent: PlayedAgent,
    until: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    listing: Any,
) -> None:
    nova.listing = listing
    nova.servers = {"bad": TypeError("no such thing"), "good": SPECS}
    agent.wants = [wanted("bad"), wanted("good")]
    until(lambda: agent.flavors == {"good": SPECS} and nova.asked.count("bad") >= 3 and agent.errors)
    assert {uuid for uuid, why in agent.errors if "no such thing" in why} == {"bad"} and not lookup.health["error"]
    logged = [record for record in caplog.records if "no such thing" in record.getMessage()]
    assert len(logged) == 1 and logged[0].exc_info, "once, although it was asked for again and again"


@pytest.mark.parametrize(
    "error",
    [Unreachable("nova", "refused"), Refused("nova", "GET", 503, "no backend"), KeyError("servers")],
    ids=["away", "busy", "nonsense"],
)
def test_a_nova_that_does_not_answer_is_asked_again_and_the_reason_is_told(
    lookup: FlavorLookup, nova: Nova, agent: PlayedAgent, until: Callable[..., None], error: Exception
) -> None:
    nova.listing = error
    nova.servers = {"a": error, "b": error}
    agent.wants = [wanted("a"), wanted("b")]
    until(lambda: len(nova.asked) > 2 and {uuid for uuid, _ in agent.errors} == {"a", "b"})
    assert all(str(error) in why for _, why in agent.errors)
    until(lambda: str(error) in (lookup.health["error"] or ""))
    nova.listing = {"a": SPECS, "b": SPECS}
    until(lambda: not agent.wants and lookup.health["error"] is None)


def test_a_nova_that_fails_to_list_for_some_servers_sake_tells_the_others_one_by_one(
    lookup: FlavorLookup, nova: Nova, agent: PlayedAgent, until: Callable[..., None]
) -> None:
    nova.listing = failure = Refused("nova", "GET /servers/detail", 500, "a flavor can't be read")
    bad, good = [f"bad-{number}" for number in range(4)], ["good-1", "good-2"]
    nova.servers = {**dict.fromkeys(bad, failure), **dict.fromkeys(good, SPECS)}
    agent.wants = [wanted(uuid) for uuid in (*bad, *good)]
    until(lambda: agent.flavors.keys() == set(good))
    until(lambda: {uuid for uuid, _ in agent.errors} >= set(bad))


def test_a_nova_that_fails_altogether_is_not_asked_for_each_server(nova: Nova, agent: PlayedAgent) -> None:
    nova.listing = failure = Refused("nova", "GET /servers/detail", 503, "no backend")
    uuids = [f"u{number}" for number in range(50)]
    nova.servers = dict.fromkeys(uuids, failure)
    lookup = made(nova, agent, Backoff(60.0, 60.0))
    lookup.answer([wanted(uuid) for uuid in uuids], agent.hostname)
    eventually(lambda: lookup.health == {"error": str(failure), "waiting": 50})
    lookup.stop()
    assert nova.asked == ["host node-1", "u0", "u1", "u2"]


@pytest.mark.parametrize("status", [401, 403, 503])
def test_a_nova_that_refuses_all_that_it_is_asked_is_told_though_it_is_asked_for_one_server(
    lookup: FlavorLookup, nova: Nova, agent: PlayedAgent, until: Callable[..., None], status: int
) -> None:
    refusal = Refused("nova", "GET /servers/a", status, "no")
    nova.servers = {"a": refusal}
    agent.wants = [wanted("a")]
    until(lambda: lookup.health == {"error": str(refusal), "waiting": 1})
    # It may be that server's own trouble: another one is answered.
    nova.servers["b"] = SPECS
    agent.wants = [wanted("a"), wanted("b")]
    until(lambda: agent.flavors == {"b": SPECS})
    nova.servers["a"] = SPECS
    until(lambda: not agent.wants and lookup.health == {"error": None, "waiting": 0})


def test_a_nova_that_did_not_answer_is_no_trouble_once_it_is_asked_for_nothing(
    lookup: FlavorLookup, nova: Nova, agent: PlayedAgent, exchange: Callable[[], None], until: Callable[..., None]
) -> None:
    nova.servers = {"a": Unreachable("nova", "refused")}
    agent.wants = [wanted("a")]
    until(lambda: lookup.health["error"])
    # The VM has ended, and no other one wants anything.
    agent.wants = []
    exchange()
    eventually(lambda: lookup.health == {"error": None, "waiting": 0})


def test_an_error_is_told_once_for_each_try_and_at_once_to_an_agent_that_was_away(
    nova: Nova, agent: PlayedAgent
) -> None:
    lookup = made(nova, agent, Backoff(60, 60))
    agent.wants = [wanted("a")]
    lookup.answer(agent.wants, "node-1")
    eventually(lambda: lookup.answer(agent.wants, "node-1") or agent.errors)
    for _ in range(5):
        lookup.answer(agent.wants, "node-1")
    assert len(agent.errors) == 1
    lookup.agent_is_away()
    for _ in range(5):
        lookup.answer(agent.wants, "node-1")
    assert len(agent.errors) == 2 and agent.errors[0] == agent.errors[1]
    lookup.stop()


def test_a_host_whose_name_is_not_known_is_a_reason(nova: Nova, agent: PlayedAgent, until: Callable[..., None]) -> None:
    nova.listing = {"a": SPECS, "b": SPECS}
    agent.hostname = None
    agent.wants = [wanted("a"), wanted("b")]
    until(lambda: agent.errors)
    assert "[placement] hypervisor_hostname" in agent.errors[0][1]
    agent.hostname = "node-1"
    until(lambda: not agent.wants)


def test_its_caller_is_never_kept_waiting_for_nova(
    nova: Nova, agent: PlayedAgent, exchange: Callable[[], None], until: Callable[..., None]
) -> None:
    nova.servers["a"] = SPECS
    nova.gate.clear()
    agent.wants = [wanted("a")]
    exchange()
    eventually(lambda: nova.asked)
    began = time.monotonic()
    agent.wants = [wanted("a"), wanted("b")]
    for _ in range(100):
        exchange()
    assert time.monotonic() - began < 50, "Nova answers only after that"
    nova.gate.set()
    until(lambda: agent.flavors == {"a": SPECS})


def test_an_answer_for_a_process_that_is_gone_is_dropped(
    nova: Nova, agent: PlayedAgent, exchange: Callable[[], None], until: Callable[..., None]
) -> None:
    nova.servers["a"] = {"hw:cache_ways": "4"}
    nova.gate.clear()
    agent.wants = [wanted("a")]
    exchange()
    eventually(lambda: nova.asked == ["a"])
    agent.wants = [wanted("a", "2-2")]
    exchange()
    nova.servers["a"] = SPECS
    nova.gate.set()
    until(lambda: agent.flavors)
    assert (nova.asked, agent.flavors) == (["a", "a"], {"a": SPECS})


def test_an_answer_that_the_agent_refuses_because_the_process_has_ended_is_forgotten(
    nova: Nova, agent: PlayedAgent, lookup: FlavorLookup, until: Callable[..., None]
) -> None:
    nova.servers["a"] = {"hw:cache_ways": "4"}
    agent.wants = [wanted("a", "2-2")]
    # The process ends between the agent's answer and what it is told.
    lookup.answer([wanted("a")], "node-1")
    eventually(lambda: lookup.health["waiting"] == 0)
    lookup.answer([wanted("a")], "node-1")
    assert agent.flavors == {}
    nova.servers["a"] = SPECS
    until(lambda: agent.flavors)
    assert agent.flavors == {"a": SPECS}


@pytest.mark.parametrize(
    "refusal",
    [
        AgentRefused(text="that is too long"),
        AgentFailed(text="that is too long", status=500),
        NotOurApi(socket="s", problem="that is too long"),
    ],
    ids=["refused", "failed", "no answer of ours"],
)
def test_what_the_agent_never_takes_keeps_no_other_vm_waiting_and_nova_at_peace(
    nova: Nova, agent: PlayedAgent, caplog: pytest.LogCaptureFixture, refusal: LocalApiError
) -> None:
    lookup = made(nova, agent, Backoff(60, 60))
    nova.listing = {"a": SPECS, "b": SPECS}
    agent.wants = [wanted("a"), wanted("b")]
    agent.refuses["a"] = refusal
    with caplog.at_level(logging.INFO, "vmqos"):
        eventually(lambda: lookup.answer(agent.openstack()["flavors_wanted"], "node-1") or agent.flavors)
        for _ in range(5):
            lookup.answer(agent.openstack()["flavors_wanted"], "node-1")
            time.sleep(0.02)
    assert agent.flavors == {"b": SPECS}
    assert nova.asked == ["host node-1"] and lookup.health["error"] is None
    assert len([record for record in caplog.records if "that is too long" in record.getMessage()]) == 1
    lookup.stop()


def test_it_is_at_rest_while_it_waits_for_a_nova_that_is_away(nova: Nova, agent: PlayedAgent) -> None:
    lookup = made(nova, agent, Backoff(60, 60))
    nova.listing = Unreachable("nova", "refused")
    agent.wants = [wanted("a"), wanted("b")]
    lookup.answer(agent.wants, "node-1")
    eventually(lambda: lookup.health["error"])
    asked, used = len(nova.asked), time.process_time()
    time.sleep(0.3)
    assert len(nova.asked) == asked
    assert time.process_time() - used < 0.2
    lookup.stop()


def test_without_credentials_nova_is_not_asked(tmp_path: Path, agent: Any) -> None:
    (tmp_path / "vmqos.conf").write_text("[nova]\nregion_name = RegionOne\n")
    conf = loader.load(["--config-file", str(tmp_path / "vmqos.conf")])
    assert FlavorLookup.of(conf, agent) is None
