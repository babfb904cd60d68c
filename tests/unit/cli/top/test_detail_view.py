# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from tests.unit.cli.top.rows import PROMISED, REASON
from tests.unit.local_api import examples
from vmqos.cli.show.terminal import Terminal
from vmqos.cli.top import detail_view
from vmqos.cli.top.data import Frame, Row
from vmqos.telemetry import Missing, Reading

PLAIN = Terminal(False, 80)


def row(**fields: Any) -> Row:
    known = PROMISED | {
        "name": "web-1",
        "remote": Reading.none(Missing.UNASSIGNED),
        "misses": Reading.none(Missing.NO_COUNTER),
        "watts": Reading(12.34),
        "stalls": Reading(0.256),
    }
    return Row(uuid=examples.WEB, **(known | fields))


def detail(**changes: Any) -> Any:
    return examples.vms()[0] | {"task_list": examples.tasks(f"vmqos.{examples.WEB}")} | changes


def text(shown: Frame, of: Row, terminal: Terminal = PLAIN, problem: str = "") -> list[str]:
    above, lines = detail_view.draw(shown, of, terminal, problem)
    return [line.plain for line in (*above, *lines)]


def frame(**fields: Any) -> Frame:
    return Frame(1794000000.0, 2.0, "agent", (row(),), cache_ways={0: 11, 1: 11}, **fields)


def test_an_estimate_says_from_what_part_of_the_time() -> None:
    shown = "\n".join(text(frame(detail=detail()), row(share=0.6)))
    assert "1.23, an estimate from 60% of its time" in shown
    assert "estimate" not in "\n".join(text(frame(detail=detail()), row(share=1.0)))


def test_live_figures_come_first_and_then_what_vm_show_knows() -> None:
    lines = text(frame(detail=detail(), hostname="compute-7"), row())
    assert lines[0].startswith("vmqos top, compute-7, ")
    assert lines[1] == "web-1, kept"
    told = [line.split("  ", 1) for line in lines[2:] if "  " in line]
    values = {title: value.strip() for title, value in told}
    assert values["Cache held"] == "3 MiB of 6 MiB"
    assert values["Ways"] == "2  ##........."
    assert values["Memory bandwidth"] == "1.5 GiB/s"
    assert values["Instructions per cycle"] == "1.23"
    assert "LLC misses" not in values
    assert (values["Power of the cores"], values["Stalled on memory"]) == ("12.3 W", "26% of its cycles")
    assert any(line.startswith("  to other sockets      no hardware counter is assigned to the VM") for line in lines)
    assert any(line.strip() == "cache 0  =======---   67%, 2 MiB of 3 MiB" for line in lines)
    assert values["UUID"] == examples.WEB
    assert values["Bandwidth limit"] == "-"
    assert values["Masks"] == "0=3; 1=3"
    assert [line.split() for line in lines[-3:]] == [
        ["TID", "In", "place", "Thread"],
        ["4321", "no", "qemu-system-x86,", "in", "(default)"],
        ["4322", "yes", "CPU", "0/KVM"],
    ]


@pytest.mark.parametrize("width", [30, 46, 80, 120])
@pytest.mark.parametrize("fancy", [True, False])
def test_no_line_is_too_long_and_no_word_is_cut(width: int, fancy: bool) -> None:
    masks = {str(cache): "3" for cache in range(24)}
    told = frame(detail=detail(masks=masks, last_error=REASON, group="", monitoring_group=None))
    of = row(state="pending", reason=REASON)
    whole = {word for line in text(told, of, Terminal(fancy, 500)) for word in line.split()}
    lines = text(told, of, Terminal(fancy, width))
    assert max(map(cell_len, lines)) <= width
    longer = [word for word in whole if len(word) > width - 2]
    pieces = {word for line in lines for word in line.split()} - whole
    assert [piece for piece in pieces if not any(piece in word for word in longer)] == []
    assert not longer or width < 46
    assert REASON in " ".join(" ".join(lines).split())


def test_a_vm_of_which_the_agent_has_told_nothing_has_its_live_figures() -> None:
    other = detail(uuid=examples.DB)
    for shown, why in (
        (frame(), "The agent is being asked."),
        (frame(detail=other), "The agent is being asked."),
        (frame(detail_problem="vmqos-agent\x1b[2J does not run"), "vmqos-agent\\x1b[2J does not run"),
    ):
        lines = text(shown, row())
        assert lines[-1] == why
        assert any("1.5 GiB/s" in line for line in lines)


def test_a_problem_and_a_reason_stand_on_top() -> None:
    lines = text(frame(), row(state="pending", reason="no\nway"), problem="no answer")
    assert lines[1].startswith("no answer; what follows is of ")
    assert lines[2:4] == ["web-1, pending", "no\\nway"]


def test_hostile_text_is_not_obeyed() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202eevil"
    told = detail(instance_name=evil, flavor=evil, project=evil, last_error=evil, task_list=examples.tasks(evil))
    shown = "\n".join(text(frame(detail=told, hostname=evil), row(reason=evil, state="pending")))
    assert "\x1b" not in shown and "\x07" not in shown and "\u202e" not in shown


def test_the_last_bandwidth_of_a_vm_that_waits_for_counters_is_told_with_its_age() -> None:
    waiting = row(total=Reading.none(Missing.UNASSIGNED), measured={"total": 1.5 * 2**30}, measured_age=95.0)
    lines = text(frame(), waiting)
    assert any(line.startswith("Memory bandwidth        no hardware counter is assigned") for line in lines)
    assert any(line.endswith("1.5 GiB/s, measured 1 min 35 s ago") for line in lines)
