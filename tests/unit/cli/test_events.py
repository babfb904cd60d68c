# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
import subprocess
import sys
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


@pytest.mark.parametrize(
    "options",
    [
        ("-f", "csv"),
        ("-f", "value"),
        ("-f", "yaml"),
        ("-f", "csv", "--quote", "none", "-c", "Number", "-c", "is"),
        ("-f", "value", "-c", "What"),
        ("-f", "yaml", "-c", "name"),
    ],
)
def test_events_that_are_followed_have_the_format_and_the_columns_of_a_list(
    agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    found = [event | {"project": "", "flavor": ""} for event in examples.events()["events"]]
    agent.answers["/v1/events"] = examples.events() | {"events": found}
    monkeypatch.setattr(events, "follow", lambda *_: iter(found))
    followed = run("events", "--follow", *options)
    assert followed == run("events", *options) and (followed.status, followed.err) == (0, "")


def test_columns_of_events_that_are_followed_can_be_chosen_as_json_and_as_text(
    agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "follow", lambda *_: iter(examples.events()["events"][:2]))
    ran = run("events", "--follow", "-f", "json", "-c", "number", "-c", "name")
    assert ran.out == '{"number": 4, "name": "web-1"}\n{"number": 5, "name": "libvirt"}\n'
    assert run("events", "--follow", "-c", "number", "-c", "What").out == "4  web-1\n5  libvirt\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("-c", "nothing"), "there is no column 'nothing'"),
        (("-f", "json", "-c", "What"), "there is no column 'What'"),
        (("--sort-column", "Time"), "--follow prints each event as it comes, so there is nothing to sort"),
    ],
)
def test_what_can_not_be_done_with_events_that_come_is_wrong_usage(
    agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], problem: str
) -> None:
    monkeypatch.setattr(events, "follow", lambda *_: iter(examples.events()["events"]))
    ran = run("events", "--follow", *options)
    assert (ran.status, ran.out) == (2, "") and ran.err.startswith(f"vmqos: {problem}")


def test_a_row_of_events_that_are_followed_is_seen_before_the_next_one_comes(agent: FakeAgent, socket: str) -> None:
    # Nothing comes after the first answer: what waits in a buffer is never seen.
    code = "import sys; from vmqos.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "events", "--follow", "-f", "csv"]
    agent.answers["/v1/events"] = lambda query: (
        ("200 OK", json.dumps(examples.events() | ({} if query["after"] == ["0"] else {"events": []})).encode())
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        try:
            seen = [follower.stdout.readline() for _ in range(4)]
        finally:
            follower.kill()
    assert seen[0].startswith('"Number","Time"') and seen[3].startswith('"6",')


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
