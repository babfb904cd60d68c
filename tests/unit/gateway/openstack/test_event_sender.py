# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.eventually import eventually
from tests.unit.gateway.openstack.test_placement import configured
from vmqos.agent.remember.event_log import EventLog
from vmqos.daemon import log_once
from vmqos.daemon.backoff import Backoff
from vmqos.gateway.openstack import event_sender
from vmqos.gateway.openstack.event_sender import EventSender, PositionFile
from vmqos.gateway.openstack.message_bus import NotSent
from vmqos.gateway.openstack.notification import LOST, Notification, Position
from vmqos.local_api.exceptions import AgentFailed, AgentNotRunning, AgentTimeout, LocalApiError, NotOurApi


class Agent:
    """The agent's own log of events, without a socket between."""

    def __init__(self) -> None:
        self.log = EventLog()
        self.error: LocalApiError | None = None
        self.broken: dict[str, Any] = {}

    def happen(self, *names: str) -> None:
        self.log.add(
            {
                "kind": "promise", "uuid": "u", "name": name, "project": "p", "flavor": "gold", "state": "kept",
                "before": "", "reason": "", "reason_code": "",
            }
            for name in names
        )  # fmt: skip

    def events(self, after: int, epoch: str = "", wait: float = 0.0) -> Any:
        if self.error is not None:
            raise self.error
        return {**self.log.after(after, epoch, wait), **self.broken}


class Bus:
    """A broker that may be away, or hang."""

    where = "rabbit://192.0.2.1:5672/"

    def __init__(self) -> None:
        self.taken: list[Notification] = []
        self.error = ""
        self.hangs = threading.Event()
        self.hangs.set()
        self.is_asked = self.closed = False

    def send(self, notification: Notification) -> None:
        self.is_asked = True
        self.hangs.wait(60)
        if self.error:
            raise NotSent(self.error)
        self.taken.append(notification)

    def close(self) -> None:
        self.closed = True

    @property
    def names(self) -> list[object]:
        """Of the events that were taken, and what is missing between them."""
        return [one.payload.get("name", one.payload["reason_code"]) for one in self.taken]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_sender, "PERIOD", 0.01)


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
def bus() -> Iterator[Bus]:
    made = Bus()
    yield made
    made.hangs.set()


@pytest.fixture
def start(agent: Agent, bus: Bus, tmp_path: Path) -> Iterator[Callable[[], EventSender]]:
    """Starts a gateway's sender; the one before it has ended."""
    made: list[EventSender] = []

    def start() -> EventSender:
        if made:
            made[-1].stop()
        file = PositionFile(str(tmp_path / "position.json"))
        made.append(EventSender(agent, bus, "node-1", file, Backoff(0.01, 0.02)))  # type: ignore[arg-type]
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.stop()


def test_each_event_is_sent_once_and_in_order(agent: Agent, bus: Bus, start: Callable[[], EventSender]) -> None:
    agent.happen("a", "b")
    sender = start()
    eventually(lambda: bus.names == ["a", "b"])
    agent.happen("c")
    eventually(lambda: bus.names == ["a", "b", "c"])
    eventually(lambda: sender.health["sent"] == 3)
    time.sleep(0.1)
    assert bus.names == ["a", "b", "c"]
    health = sender.health
    assert (health["sent"], health["waiting"], health["failures"], health["error"]) == (3, 0, 0, None)
    assert health["sent_at"] == pytest.approx(time.time(), abs=20)
    sender.stop()
    eventually(lambda: bus.closed)


def test_what_a_broker_that_is_away_does_not_take_is_told_once_and_sent_later(
    agent: Agent, bus: Bus, start: Callable[[], EventSender], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bus.error = "connection refused"
    agent.happen("a", "b", "c")
    sender = start()
    eventually(lambda: sender.health["failures"] > 3)
    health = sender.health
    assert (health["error"], health["waiting"], health["sent"], health["sent_at"]) == ("connection refused", 3, 0, None)
    agent.happen("d")
    eventually(lambda: sender.health["waiting"] == 4)
    bus.error = ""
    eventually(lambda: bus.names == ["a", "b", "c", "d"])
    eventually(lambda: sender.health["waiting"] == 0)
    assert sender.health["error"] is None
    assert caplog.text.count("can't be sent to rabbit://192.0.2.1:5672/: connection refused") == 1
    assert caplog.text.count("notifications are sent to rabbit://192.0.2.1:5672/ again") == 1


def test_another_gateway_goes_on_after_what_the_one_before_it_sent(
    agent: Agent, bus: Bus, start: Callable[[], EventSender]
) -> None:
    agent.happen("a", "b")
    start()
    eventually(lambda: bus.names == ["a", "b"])
    start()
    agent.happen("c")
    eventually(lambda: bus.names == ["a", "b", "c"])


def test_another_run_of_the_agent_is_told_with_what_was_not_sent_of_the_one_before(
    agent: Agent, bus: Bus, start: Callable[[], EventSender], caplog: pytest.LogCaptureFixture
) -> None:
    agent.happen("a")
    sender = start()
    eventually(lambda: bus.names == ["a"])
    bus.error = "refused"
    agent.happen("b", "c")
    eventually(lambda: sender.health["waiting"] == 2)
    agent.log = EventLog()
    agent.happen("d")
    eventually(lambda: sender.health["waiting"] == 1)
    bus.error = ""
    eventually(lambda: bus.names == ["a", "agent-restarted", "d"])
    assert (bus.taken[1].event_type, bus.taken[1].payload["lost"]) == (LOST, 2)
    eventually(lambda: sender.health["lost"] == 2)
    assert "2 or more events of its last run were not sent" in caplog.text


def test_a_gateway_that_could_not_send_anything_yet_tells_what_it_lost(
    agent: Agent, bus: Bus, start: Callable[[], EventSender]
) -> None:
    bus.error = "connection refused"
    agent.happen("a", "b")
    sender = start()
    eventually(lambda: sender.health["failures"] > 1)
    agent.log = EventLog()
    agent.happen("c")
    eventually(lambda: sender.health["waiting"] == 1)
    bus.error = ""
    eventually(lambda: bus.names == ["agent-restarted", "c"])
    assert bus.taken[0].lost == 2


def test_events_that_fall_out_of_the_agent_s_log_meanwhile_are_counted(
    agent: Agent, bus: Bus, start: Callable[[], EventSender], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmqos.agent.remember.event_log.MOST", 3)
    agent.log = EventLog()
    agent.happen("a")
    sender = start()
    eventually(lambda: bus.names == ["a"])
    bus.error = "refused"
    agent.happen(*"bcdefg")
    assert agent.log.after(0)["first"] > 1 or pytest.fail("the log has no bound")
    eventually(lambda: sender.health["waiting"] == 6)
    bus.error = ""
    eventually(lambda: sender.health["waiting"] == 0)
    lost = bus.taken[1].payload["lost"]
    assert isinstance(lost, int) and sender.health["lost"] == lost > 0
    assert bus.names == ["a", "too-many-events", *"bcdefg"[lost:]]


def test_an_agent_that_is_away_costs_nothing_and_is_waited_for(
    agent: Agent, bus: Bus, start: Callable[[], EventSender]
) -> None:
    agent.error = AgentNotRunning(socket="gateway.sock")
    agent.happen("a")
    sender = start()
    time.sleep(0.1)
    assert (bus.taken, sender.health["error"], sender.health["failures"]) == ([], None, 0)
    agent.error = None
    eventually(lambda: bus.names == ["a"])


FAR_AWAY = {
    "number": 1,
    "time": 1e300,
    "kind": "promise",
    "uuid": "u",
    "name": "a",
    "state": "kept",
    "before": "",
    "reason": "",
    "reason_code": "",
}
"""An event at a time that no clock tells."""


@pytest.mark.parametrize(
    "broken",
    [{"events": [{}]}, {"first": None}, {"events": [{"state": "kept", "kind": "new"}]}, {"events": [FAR_AWAY]}],
)
def test_an_agent_that_answers_something_else_is_told_and_the_thread_lives_on(
    agent: Agent, bus: Bus, start: Callable[[], EventSender], broken: dict[str, Any]
) -> None:
    agent.happen("a")
    agent.broken = broken
    sender = start()
    eventually(lambda: "the agent's events can't be read" in (sender.health["error"] or ""))
    agent.broken, agent.error = {}, NotOurApi(socket="gateway.sock", problem="no JSON")
    eventually(lambda: "no JSON" in (sender.health["error"] or ""))
    agent.error = None
    eventually(lambda: bus.names == ["a"] and sender.health["error"] is None)


@pytest.mark.parametrize(
    "error",
    [AgentFailed(status=500, text="it is broken"), AgentTimeout(socket="gateway.sock", seconds=10)],
    ids=["broken", "hung"],
)
def test_an_agent_that_answers_everything_but_this_is_told(
    agent: Agent, bus: Bus, start: Callable[[], EventSender], error: LocalApiError
) -> None:
    agent.error = error
    agent.happen("a")
    sender = start()
    eventually(lambda: str(error) in (sender.health["error"] or ""))
    agent.error = None
    eventually(lambda: bus.names == ["a"] and sender.health["error"] is None)


def test_an_agent_that_answers_again_is_no_trouble_however_often_that_was_logged(
    agent: Agent, bus: Bus, start: Callable[[], EventSender]
) -> None:
    """The log has a bound, and what the metrics say has none."""
    agent.happen("a")
    sender = start()
    eventually(lambda: bus.names == ["a"])
    for _ in range(2 * log_once.BURST):
        agent.error = AgentTimeout(socket="gateway.sock", seconds=10)
        eventually(lambda: sender.health["error"])
        agent.error = None
        eventually(lambda: sender.health["error"] is None)


def test_a_broker_that_hangs_does_not_hold_up_the_end(agent: Agent, bus: Bus, start: Callable[[], EventSender]) -> None:
    agent.happen("a")
    bus.hangs.clear()
    sender = start()
    eventually(lambda: bus.is_asked)
    began = time.monotonic()
    sender.stop()
    assert time.monotonic() - began < 30, "the broker hangs for twice as long"


def test_a_pause_after_a_failure_does_not_hold_up_the_end(agent: Agent, bus: Bus, tmp_path: Path) -> None:
    agent.happen("a")
    bus.error = "refused"
    file = PositionFile(str(tmp_path / "position.json"))
    sender = EventSender(agent, bus, "node-1", file, Backoff(60, 60))  # type: ignore[arg-type]
    sender.start()
    eventually(lambda: sender.health["failures"] == 1)
    began = time.monotonic()
    sender.stop()
    eventually(lambda: bus.closed)
    assert time.monotonic() - began < 30, "the pause is twice as long"


def test_a_position_is_kept_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "position.json"
    assert PositionFile(str(path)).read() == Position()
    PositionFile(str(path)).write(Position("e", 7))
    assert PositionFile(str(path)).read() == Position("e", 7)
    assert [one.name for one in tmp_path.iterdir()] == ["position.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"epoch": 1, "number": 2}', '{"epoch": "e", "number": true}', "[" * 900, "\xff"]
)
def test_a_file_that_has_no_position_is_told_and_all_events_are_news(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "position.json"
    path.write_text(text, encoding="latin-1")
    assert PositionFile(str(path)).read() == Position()
    assert "may be sent again" in caplog.text


def test_a_fifo_in_the_place_of_the_position_holds_nothing_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "position.json"
    os.mkfifo(path)
    assert PositionFile(str(path)).read() == Position()
    assert "it is no regular file" in caplog.text


def test_a_position_that_can_not_be_kept_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = PositionFile(str(tmp_path / "nowhere" / "position.json"))
    for number in range(3):
        file.write(Position("e", number))
    assert caplog.text.count("a restart sends some again") == 1


def test_without_a_broker_in_the_configuration_nothing_is_sent(tmp_path: Path, agent: Agent) -> None:
    assert EventSender.of(configured(tmp_path, ""), agent) is None  # type: ignore[arg-type]


def test_the_configuration_says_where_and_as_whom(tmp_path: Path, agent: Agent, bus: Bus) -> None:
    path = tmp_path / "position.json"
    text = f"[notifications]\ntransport_url = rabbit://h/\nhost = n1\nposition_file = {path}\n"
    sender = EventSender.of(configured(tmp_path, text), agent, lambda conf: bus)  # type: ignore[arg-type]
    assert sender is not None and sender.health["where"] == bus.where
    agent.happen("a")
    sender.start()
    eventually(path.exists)
    sender.stop()
    assert bus.taken[0].payload["host"] == "n1"
