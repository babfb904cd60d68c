# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest

from vmqos.cli.terminal import Terminal
from vmqos.cli.top.data import Frame, Order, Row
from vmqos.cli.top.live_display import Looker, View
from vmqos.telemetry import Reading

TERMINAL = Terminal(False, 100)


def frame(count: int = 30) -> Frame:
    rows = [
        Row(
            uuid=f"{number:08}",
            name=f"vm-{number:02}",
            instance_name=f"vm-{number:02}",
            occupancy=Reading(number),
            total=Reading(-number),
        )
        for number in range(count)
    ]
    return Frame(1794000000.0, 2.0, "agent", tuple(rows))


def names(view: View, shown: Frame, height: int = 12) -> list[str]:
    lines = [line.plain for line in view.draw(shown, "", TERMINAL, height)]
    assert len(lines) == height
    return [line.split()[0] for line in lines if line.strip().startswith("vm-")]


def press(view: View, *keys: str) -> None:
    for key in keys:
        view.press(key)


def test_letters_sort_and_a_capital_one_turns_round() -> None:
    shown = frame()
    view = View(shown, (), Order())
    assert names(view, shown)[0] == "vm-29"
    press(view, "t")
    assert names(view, shown)[0] == "vm-00"
    press(view, "R")
    assert names(view, shown)[0] == "vm-29"
    press(view, "n")
    assert names(view, shown)[0] == "vm-29"


def test_arrows_scroll_and_stop_at_the_ends() -> None:
    shown = frame()
    view = View(shown, (), Order("name"))
    page = len(names(view, shown))
    for keys, first in (
        (["down", "down"], 2),
        (["up"], 1),
        (["page down"], 1 + page),
        (["page up", "page up"], 0),
        (["end"], 30 - page),
        (["down"], 30 - page),
        (["home"], 0),
        (["up"], 0),
    ):
        press(view, *keys)
        assert names(view, shown)[0] == f"vm-{first:02}", keys


def test_vms_that_went_leave_no_empty_page() -> None:
    view = View(frame(), (), Order("name"))
    names(view, frame())
    press(view, "end")
    names(view, frame())
    assert names(view, frame(3)) == ["vm-00", "vm-01", "vm-02"]


def test_help_covers_the_vms_and_goes_again() -> None:
    shown = frame()
    view = View(shown, (), Order())
    press(view, "h")
    assert names(view, shown) == []
    assert any("sort by" in line.plain.lower() for line in view.draw(shown, "", TERMINAL, 24))
    press(view, "?")
    assert names(view, shown)


def test_q_is_enough_and_other_keys_are_nothing() -> None:
    shown = frame()
    view = View(shown, (), Order())
    before = names(view, shown)
    press(view, "x", "$", "Q")
    assert not view.over
    assert names(view, shown) == before
    press(view, "q")
    assert view.over


def test_only_those_asked_for_are_shown() -> None:
    shown = frame()
    assert names(View(shown, ("vm-07", "00000003"), Order()), shown) == ["vm-07", "vm-03"]


def test_a_failed_look_is_told_and_what_was_seen_stays() -> None:
    answers: list[Frame | Exception] = [frame(1), OSError("no answer"), frame(2)]
    told = threading.Semaphore(0)

    def look() -> Frame:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with Looker(look, 3600.0, told.release) as looker:
        for rows, problem in ((1, ""), (1, "no answer"), (2, "")):
            looker.hurry()
            assert told.acquire(timeout=10)
            assert looker.frame is not None
            assert (len(looker.frame.rows), looker.problem) == (rows, problem)


def test_a_look_that_hangs_keeps_nobody_from_leaving() -> None:
    hangs, begun = threading.Event(), threading.Event()

    def look() -> Frame:
        begun.set()
        hangs.wait(30)
        return frame(0)

    with Looker(look, 0.0, lambda: None):
        assert begun.wait(10)
    hangs.set()


@pytest.mark.parametrize("height", [1, 2, 3, 5])
def test_a_terminal_of_a_few_lines_is_filled_and_not_more(height: int) -> None:
    shown = frame()
    assert len(View(shown, (), Order()).draw(shown, "", TERMINAL, height)) >= 1
