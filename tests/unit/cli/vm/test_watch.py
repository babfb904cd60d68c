# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from rich.cells import cell_len
from rich.text import Text

from tests.unit.cli.conftest import Run
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.cli.show.freshness import Freshness
from vmqos.cli.show.terminal import Terminal
from vmqos.cli.vm.watch import Look, View

PLAIN = Terminal(False, 80)
LOOK = Look(1794000000.0, examples.vms(), Freshness(hostname="compute-7"))
TABLE = [Text(f"+- {name}") for name in ("line", "titles", "line")] + [Text(f"vm-{number:02}") for number in range(30)]


def drawn(
    view: View, *, table: list[Text] = TABLE, look: Look = LOOK, problem: str = "", height: int = 12
) -> list[str]:
    lines = [line.plain for line in view.draw(look, table, problem, PLAIN, height)]
    assert len(lines) == height
    return lines


def test_the_heading_and_the_titles_stay_while_the_vms_scroll() -> None:
    view = View(2.0)
    page = 6
    for keys, first in (
        ([], 0),
        (["down", "down"], 2),
        (["up"], 1),
        (["page down"], 1 + page),
        (["end"], 30 - page),
        (["down"], 30 - page),
        (["up"], 29 - page),
        (["home"], 0),
        (["up"], 0),
    ):
        for key in keys:
            view.press(key)
        lines = drawn(view)
        assert lines[0].startswith("vmqos vm list, compute-7, ") and lines[0].endswith(", every 2 s")
        assert lines[1:4] == ["+- line", "+- titles", "+- line"]
        assert lines[4:10] == [f"vm-{number:02}" for number in range(first, first + page)], keys
        assert lines[10] == f"lines {first + 1} to {first + page} of 30"
        assert lines[11].startswith("q quit")


def test_a_list_that_fits_is_not_scrolled_and_an_empty_one_says_so() -> None:
    view = View(2.0)
    view.press("end")
    assert drawn(view, table=TABLE[:6])[4:8] == ["vm-00", "vm-01", "vm-02", ""]
    assert drawn(view, table=[])[1] == "no VM"


def test_what_is_old_or_not_served_stands_above_the_list() -> None:
    old = Look(LOOK.taken_at, LOOK.vms, Freshness(("vms",), {"vms": 200.0}, {"4f2c": "no\nprocess"}))
    lines = drawn(View(2.0), look=old, table=TABLE[:5], height=20)
    assert "it last looked at all VMs 3 min 20 s ago" in " ".join(" ".join(lines).split())
    assert "VM 4f2c runs and is not served: no\\nprocess" in lines
    assert drawn(View(2.0), problem="no answer\x1b[2J")[1].startswith("no answer\\x1b[2J; what follows is of ")


@pytest.mark.parametrize("height", [1, 2, 3, 5])
@pytest.mark.parametrize("width", [4, 20, 80])
def test_a_tiny_terminal_is_filled_and_not_more(width: int, height: int) -> None:
    lines = View(2.0).draw(LOOK, TABLE, "", Terminal(False, width), height)
    assert len(lines) == height
    assert all(cell_len(line.plain) <= max(width, len("q quit")) or line in TABLE for line in lines)


def test_q_is_enough_and_other_keys_are_nothing() -> None:
    view = View(2.0)
    for key in ("x", "enter", "escape"):
        view.press(key)
    assert not view.over
    view.press("q")
    assert view.over


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times between the lists that are printed: the third wait ends the command."""
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("vmqos.cli.vm.command.time.sleep", sleep)
    return waited


def test_without_a_terminal_each_list_is_printed_below_the_last(
    agent: FakeAgent, run: Run, rounds: list[float]
) -> None:
    once = run("vm", "list").out
    ran = run("vm", "list", "--watch", "7")
    assert ran.out == f"{once}\n{once}\n{once}"
    assert ran.status == 130
    # Here no time passes in a wait: each list is due seven seconds after the last one was.
    assert all(7 * number - 1 < seconds <= 7 * number for number, seconds in enumerate(rounds, 1))


def test_programs_get_the_usual_json_each_time(agent: FakeAgent, run: Run, rounds: list[float]) -> None:
    once = run("vm", "list", "-f", "json", "--state", "pending").out
    assert run("vm", "list", "-f", "json", "--state", "pending", "--watch").out == once * 3
    assert len(json.loads(once)) == 1


def test_an_agent_that_is_away_for_a_while_is_told_and_asked_again(
    agent: FakeAgent, run: Run, rounds: list[float]
) -> None:
    answers = [b'{"vms": []}', b"no JSON", b'{"vms": []}']
    agent.answers["/v1/vms"] = lambda query: ("200 OK", answers.pop(0))
    ran = run("vm", "list", "-f", "csv", "--watch")
    assert ran.out.count('"UUID"') == 2
    assert "is not the API of this version" in ran.err
    assert len(rounds) == 3


def test_an_agent_that_is_not_there_at_the_beginning_is_an_error(run: Run) -> None:
    ran = run("vm", "list", "--watch")
    assert (ran.status, ran.out) == (1, "")
    assert "vmqos-agent does not run" in ran.err


@pytest.mark.parametrize("seconds", ["0", "soon", "nan"])
def test_a_time_that_is_none_is_wrong_usage(seconds: str, agent: FakeAgent, run: Run) -> None:
    assert run("vm", "list", "--watch", seconds).status == 2
