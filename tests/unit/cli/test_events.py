# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
from itertools import islice
from typing import Any
from unittest.mock import patch

import pytest

from tests.unit.cli.conftest import Ran, Run
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.cli import events
from vmqos.cli.show import tables, terminal
from vmqos.cli.show.terminal import Terminal
from vmqos.local_api.exceptions import AgentHungUp, AgentNotRunning


def test_events_are_listed_with_the_oldest_first_and_times_in_utc(agent: FakeAgent, run: Run) -> None:
    ran = run("events", "-f", "value", "-c", "Number", "-c", "Time", "-c", "What", "-c", "Was", "-c", "Is")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "4 1970-01-01 00:16:44 web-1  kept",
        "5 1970-01-01 00:16:45 libvirt works fails",
        "6 1970-01-01 00:16:46 web-1 kept degraded",
    ]


def test_a_column_of_numbers_is_sorted_by_number(agent: FakeAgent, run: Run) -> None:
    found = examples.events()
    one = found["events"][0]
    agent.answers["/v1/events"] = found | {"events": [one | {"number": number} for number in (9, 100, 10)]}
    for column in ("Number", "number"):
        ran = run("events", "--sort-column", column, "-f", "value", "-c", "Number")
        assert (ran.status, ran.out.split()) == (0, ["9", "10", "100"])
    ran = run("events", "--sort-column", "Number", "--sort-descending", "-f", "value", "-c", "Number")
    assert ran.out.split() == ["100", "10", "9"]


def test_json_is_the_agents_own_and_one_vms_events_can_be_chosen(agent: FakeAgent, run: Run) -> None:
    everything = examples.events()["events"]
    assert json.loads(run("events", "-f", "json").out) == everything
    for vm in ("web-1", examples.WEB, examples.WEB[:8].upper()):
        for words in ((vm,), ("--vm", vm), ("db-1", vm), (vm, "--vm", "db-1")):
            assert json.loads(run("events", "-f", "json", *words).out) == [everything[0], everything[2]]
    assert json.loads(run("events", "-f", "json", "--vm", "").out) == everything


@pytest.mark.parametrize(
    ("since", "after", "warning"),
    [
        ("5", "4", ""),
        ("4", "3", ""),
        ("7", "6", ""),
        ("1", "0", "vmqos: 3 events are lost: the agent no longer remembers them\n"),
        ("8", "7", "vmqos: there is no event 8 yet: the last one of this agent is 6\n"),
    ],
)
def test_a_list_may_begin_with_a_number(agent: FakeAgent, run: Run, since: str, after: str, warning: str) -> None:
    ran = run("events", "--since", since, "-f", "json")
    assert (ran.status, ran.err) == (0, warning)
    assert agent.queries[-1]["after"] == [after]


@pytest.mark.parametrize("since", ["0", "-1", "soon", "1.5"])
def test_a_list_that_is_to_begin_with_no_number_is_wrong_usage(agent: FakeAgent, run: Run, since: str) -> None:
    ran = run("events", "--since", since)
    assert (ran.status, ran.out) == (2, "")
    assert since in ran.err


def test_a_hostile_name_reaches_no_terminal(agent: FakeAgent, run: Run) -> None:
    found = examples.events()
    agent.answers["/v1/events"] = found | {"events": [found["events"][0] | {"name": "\x1b[2J\nevil"}]}
    assert "\x1b" not in run("events").out + run("events", "-f", "value").out


class Steps:
    """An agent that answers one question after the other."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[int, str]] = []

    def events(self, after: int, epoch: str, wait: float) -> Any:
        self.asked.append((after, epoch))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def answer(epoch: str, *numbers: int, first: int = 1) -> dict[str, Any]:
    last = max(numbers, default=first - 1)
    return {"epoch": epoch, "first": first, "last": last, "events": [{"number": number} for number in numbers]}


def test_following_waits_for_an_agent_that_is_away_and_says_what_was_lost() -> None:
    gone = AgentNotRunning(socket="/run/vmqos/agent.sock")
    died = AgentHungUp(socket="/run/vmqos/agent.sock")
    agent = Steps(answer("e1", 3), died, gone, answer("e2", 1, 2), answer("e2", 9, first=9))
    said: list[str] = []
    with patch.object(events, "PAUSE", 0.0):
        found = events.follow(agent, answer("e1", 1, 2), said.append)  # type: ignore[arg-type]
        assert [event["number"] for event in islice(found, 6)] == [1, 2, 3, 1, 2, 9]
    assert agent.asked == [(2, "e1"), (3, "e1"), (3, "e1"), (3, "e1"), (2, "e2")]
    assert (
        len(said) == 2
        and "ended while it was asked" in said[0]
        and said[0].endswith("waiting for it")
        and said[1].startswith("6 events are lost")
    )


TOLD = (
    "vmqos: no VM that runs or is named in an event here has the UUID or name '{}'; 'vmqos events' shows all events{}\n"
)


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        (("nobody",), "nobody"),
        (("libvirt",), "libvirt"),
        (("web",), "web"),
        (("",), ""),
        (("web-1", "nobody"), "nobody"),
        (("web-1", "--vm", "nobody"), "nobody"),
    ],
)
def test_a_vm_of_which_nothing_is_known_is_refused(
    agent: FakeAgent, run: Run, words: tuple[str, ...], unknown: str
) -> None:
    for options in ((), ("-f", "json"), ("--since", "5")):
        ran = run("events", *words, *options)
        assert (ran.status, ran.out, ran.err) == (1, "", TOLD.format(unknown, ""))


def test_a_vm_that_runs_may_have_no_event(agent: FakeAgent, run: Run) -> None:
    assert run("events", "db-1") == Ran(0, "No such event.\n", "")


def test_a_vm_that_has_ended_is_known_by_its_events_even_if_they_are_older_than_what_is_asked_for(
    agent: FakeAgent, run: Run
) -> None:
    agent.answers["/v1/vms"] = {"vms": []}
    found = examples.events()

    def answer(query: dict[str, list[str]]) -> tuple[str, bytes]:
        later = [event for event in found["events"] if event["number"] > int(query["after"][0])]
        return "200 OK", json.dumps(found | {"events": later}).encode()

    agent.answers["/v1/events"] = answer
    assert run("events", "web-1", "--since", "7", "-f", "json").status == 0


def test_a_vm_that_is_not_there_yet_is_waited_for(agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    later = {**examples.events()["events"][0], "number": 7, "name": "nobody"}
    monkeypatch.setattr(events, "follow", lambda *_: iter([*examples.events()["events"], later]))
    ran = run("events", "--follow", "nobody", "-f", "json")
    assert (ran.status, json.loads(ran.out), ran.err) == (0, later, TOLD.format("nobody", "; waiting for it"))
    assert run("events", "--follow", "", "-f", "json").status == 1


def test_a_vm_may_be_named_by_its_libvirt_name_which_events_do_not_have(agent: FakeAgent, run: Run) -> None:
    by_name = run("events", "web-1", "-f", "json")
    assert run("events", f"instance-{examples.WEB[:8]}", "-f", "json") == by_name and by_name.err == ""


def test_people_are_told_that_nothing_changed(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/events"] = examples.events() | {"events": []}
    assert run("events").out == "Nothing changed since the agent started.\n"
    assert run("events", "-f", "value").out == ""


def test_a_narrow_terminal_shows_times_and_leaves_room_for_reasons() -> None:
    found = [event | {"reason": "word " * 20} for event in examples.events()["events"]]
    stream = io.StringIO()
    screen = Terminal(width=60)
    rows = [events._cells(event) for event in found]
    terminal.show(tables.draw(events.TITLES, rows, screen, 60, events.Events.optional), stream, screen)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert (
        "| 01-01 00:16:44 |" in stream.getvalue() and lines[-1] == "No room for: Number, UUID, Was (-c chooses columns)"
    )
