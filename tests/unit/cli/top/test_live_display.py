# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.text import Text

from vmqos.cli.show.terminal import Terminal
from vmqos.cli.top.data import Frame, Order, Row
from vmqos.cli.top.live_display import View
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
    return [line.lstrip(" >").split()[0] for line in lines if line.lstrip(" >").startswith("vm-")]


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


def chosen(view: View, shown: Frame, height: int = 12) -> str:
    (line,) = [line.plain for line in view.draw(shown, "", TERMINAL, height) if line.plain[1:2] == ">"]
    return line.lstrip(" >").split()[0]


def test_arrows_move_from_vm_to_vm_and_stop_at_the_ends() -> None:
    shown = frame()
    view = View(shown, (), Order("name"))
    page = len(names(view, shown))
    for keys, at in (
        ([], 0),
        (["down", "down"], 2),
        (["up"], 1),
        (["page down"], 1 + page),
        (["page up", "page up"], 0),
        (["end"], 29),
        (["down"], 29),
        (["home"], 0),
        (["up"], 0),
    ):
        press(view, *keys)
        assert chosen(view, shown) == f"vm-{at:02}", keys


def test_the_vm_that_was_moved_to_is_always_seen_and_stays_chosen_when_the_order_changes() -> None:
    shown = frame()
    view = View(shown, (), Order("name"))
    names(view, shown)
    press(view, *["down"] * 4)
    assert chosen(view, shown) == "vm-04"
    press(view, "R")
    assert chosen(view, shown) == "vm-04"
    assert chosen(view, frame(6)) == "vm-04"
    # It went: the one that is in its place now is chosen.
    assert chosen(view, frame(3)) == "vm-01"


def test_who_is_at_the_top_stays_at_the_top() -> None:
    shown = frame()
    view = View(shown, (), Order("name"))
    assert chosen(view, shown) == "vm-00"
    press(view, "R")
    assert chosen(view, shown) == "vm-29"
    press(view, "down", "home", "R")
    assert chosen(view, shown) == "vm-00"


def listed(view: View, shown: Frame, height: int = 40) -> list[str]:
    return sorted(
        line.plain.lstrip(" >").split()[0]
        for line in view.draw(shown, "", TERMINAL, height)
        if line.plain.lstrip(" >").startswith("vm-")
    )


def test_a_search_lists_what_has_the_text_in_name_uuid_or_flavor() -> None:
    rows = (
        Row(uuid="4f2c", name="vm-web", instance_name="vm-web", flavor="c2.big"),
        Row(uuid="7d01", name="vm-db", instance_name="vm-db", libvirt_name="instance-5", flavor="m1.small"),
        Row(uuid="9b3d", name="vm-É q", instance_name="vm-É q", flavor="c2.small"),
    )
    shown = Frame(1794000000.0, 2.0, "agent", rows)
    for text, found in (
        ("WEB", ["vm-web"]),
        ("d0", ["vm-db"]),
        ("c2.", ["vm-web", "vm-É"]),
        ("instance-5", ["vm-db"]),
        ("é q", ["vm-É"]),
        ("[", []),
    ):
        view = View(shown, (), Order("name"))
        press(view, "/", *(key if key != " " else "space" for key in text))
        assert listed(view, shown) == found, text
        last = view.draw(shown, "", TERMINAL, 40)[-1].plain
        assert last.startswith(f"/{text}_   {len(found)} of 3 VMs")
        # Its letters are no keys, until Enter ends it; Escape lists all again.
        assert not view.over
        press(view, "enter")
        assert listed(view, shown) == found
        press(view, "escape")
        assert len(listed(view, shown)) == 3
    assert "none of 3 VMs has this text" in [line.plain.strip() for line in _searched("zzz", shown)]


def _searched(text: str, shown: Frame) -> list[Text]:
    view = View(shown, (), Order())
    press(view, "/", *text)
    return view.draw(shown, "", TERMINAL, 40)


def test_a_search_can_be_mended_and_given_up() -> None:
    shown = frame()
    view = View(shown, (), Order("name"))
    press(view, "/", "1", "7", "x", "backspace")
    assert listed(view, shown) == ["vm-17"]
    press(view, "backspace", "clear", "2", "9")
    assert listed(view, shown) == ["vm-29"]
    press(view, "escape")
    assert not view.is_searching
    assert len(listed(view, shown)) == 30
    press(view, "/", *"q" * 300, "enter")
    assert all(cell_len(line.plain) <= TERMINAL.width for line in view.draw(shown, "", TERMINAL, 12))


def test_enter_opens_the_chosen_vm_and_escape_leads_back() -> None:
    shown = frame()
    view = View(shown, (), Order("name"))
    names(view, shown)
    press(view, "down", "enter")
    assert view.opened == "00000001"
    lines = [line.plain for line in view.draw(shown, "", TERMINAL, 24)]
    assert lines[1] == "vm-01"
    assert "The agent is being asked." in lines
    # Letters that sort do nothing here, and a VM that ends is told as gone.
    press(view, "o", "/", "enter")
    assert (view.opened, view.is_searching) == ("00000001", False)
    assert "This VM does not run any more." in [line.plain for line in view.draw(frame(1), "", TERMINAL, 24)]
    press(view, "escape")
    assert (view.opened, chosen(view, shown)) == ("", "vm-01")


def test_enter_opens_nothing_where_no_vm_is_listed() -> None:
    shown = frame(0)
    view = View(shown, (), Order())
    view.draw(shown, "", TERMINAL, 24)
    press(view, "down", "end", "enter")
    assert view.opened == ""


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


@pytest.mark.parametrize("height", [1, 2, 3, 5])
def test_a_terminal_of_a_few_lines_is_filled_and_not_more(height: int) -> None:
    shown = frame()
    assert len(View(shown, (), Order()).draw(shown, "", TERMINAL, height)) >= 1
