# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ceilometer_pollster import agent_api, agent_watch
from ceilometer_pollster.agent_api import Executed, Look, NoCounts
from ceilometer_pollster.agent_watch import AgentWatch
from tests.unit.ceilometer_pollster.sweeps import GOLD, PLAIN, Instance

Outcomes = Callable[..., list[str]]
COUNTED = Executed({"cycles": 1})
BY_PACKAGES = Executed({"cycles": 1}, reason="no events here", source="aet")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Outcomes:
    """Have the agent answer so, one question after the other; returns which sockets were asked."""

    def put(*outcomes: Look | NoCounts) -> list[str]:
        left, asked = list(outcomes), list[str]()

        def ask(path: str) -> Look:
            asked.append(path)
            outcome = left.pop(0)
            if isinstance(outcome, NoCounts):
                raise outcome
            return outcome

        monkeypatch.setattr(agent_api, "ask", ask)
        return asked

    return put


def test_all_meters_of_a_cycle_share_one_answer_and_the_next_cycle_asks_anew(answers: Outcomes) -> None:
    first, second = Look(1.0, {GOLD: COUNTED}), Look(2.0, {GOLD: COUNTED})
    asked = answers(first, second)
    watched, cache = AgentWatch("/s"), dict[str, object]()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: watched.look(cache, [Instance(GOLD)]), range(8)))
    assert all(one is first for one in found)
    assert asked == ["/s"]
    assert watched.look({}, []) is second


def test_an_agent_that_does_not_answer_is_asked_once_a_cycle_and_told_of_once(
    answers: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    asked = answers(NoCounts("it does not run"), NoCounts("it does not run"), Look(1.0, {GOLD: COUNTED}))
    watched, cache = AgentWatch("/s"), dict[str, object]()
    assert [watched.look(cache, [Instance(GOLD)]) for _ in range(3)] == [None] * 3
    assert watched.look({}, [Instance(GOLD)]) is None
    assert len(asked) == 2
    assert caplog.messages == ["no instance has samples that need hardware events: it does not run"]
    assert watched.look({}, [Instance(GOLD)]) is not None
    assert caplog.messages[1:] == ["vmqos-agent tells what instances execute again"]


def test_an_instance_that_is_not_counted_is_told_of_once_and_one_that_does_not_run_is_not(
    answers: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    uncounted = Look(1.0, {GOLD: Executed({}, reason="it has 2000 tasks")})
    answers(uncounted, NoCounts("gone"), uncounted, Look(2.0, {GOLD: COUNTED, PLAIN: COUNTED}))
    watched = AgentWatch("/s")
    instances = [Instance(GOLD), Instance(PLAIN), Instance("off", status="shutoff")]
    for _ in range(3):
        watched.look({}, instances)
    between = ["no instance has samples that need hardware events: gone"]
    between += ["vmqos-agent tells what instances execute again"]
    assert [text for text in caplog.messages if text not in between] == [
        f"instance {GOLD} has no samples that need hardware events: it has 2000 tasks",
        f"instance {PLAIN} has no samples that need hardware events: vmqos-agent does not count it (yet)",
    ]
    watched.look({}, instances)
    assert caplog.messages[4:] == [
        f"instance {uuid} has samples that need hardware events again" for uuid in (GOLD, PLAIN)
    ]


def test_an_instance_that_was_stopped_is_said_to_have_samples_again_once_it_has_some(
    answers: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answers(Look(1.0, {}), Look(2.0, {}), Look(3.0, {}), Look(4.0, {GOLD: COUNTED}))
    watched = AgentWatch("/s")
    for status in ("active", "stopped", "active"):
        watched.look({}, [Instance(GOLD, status)])
    told = f"instance {GOLD} has no samples that need hardware events: vmqos-agent does not count it (yet)"
    assert caplog.messages == [told]
    watched.look({}, [Instance(GOLD)])
    assert caplog.messages == [told, f"instance {GOLD} has samples that need hardware events again"]


def test_each_service_has_a_watch_of_its_own_for_as_long_as_it_lives() -> None:
    class Manager:
        pass

    one, other = Manager(), Manager()
    assert agent_watch.of_service(one, "/s") is agent_watch.of_service(one, "/s")
    assert agent_watch.of_service(one, "/s") is not agent_watch.of_service(other, "/s")
    del one, other
    gc.collect()
    assert not any(isinstance(manager, Manager) for manager in agent_watch.of_service._made)


def test_an_instance_of_which_packages_count_the_cycles_lacks_the_others_alone(
    answers: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    answers(Look(1.0, {GOLD: BY_PACKAGES}))
    assert AgentWatch("/s").look({}, [Instance(GOLD)]) is not None
    rest = "hardware events, but for those of cycles"
    assert caplog.messages == [f"instance {GOLD} has no samples that need {rest}: no events here"]
