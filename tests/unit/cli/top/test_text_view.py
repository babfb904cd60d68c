# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from tests.unit.cli.top.rows import MIB, PLAIN, REASON, frame, row, text
from vmqos.cli.show.freshness import Freshness
from vmqos.cli.show.terminal import Terminal
from vmqos.cli.top import text_view
from vmqos.cli.top.data import Order, Row
from vmqos.telemetry import Missing, Reading

NOT_COUNTED = Reading.none(Missing.NO_COUNTER)
NOTE = "No IPC and no LLC misses: this kernel gives no hardware events, as in most virtual machines"


def test_a_vm_is_a_line_with_everything_in_its_column() -> None:
    titles, line = text(frame(row("web-1")), Terminal(False, 140))[2:4]
    assert " ".join(titles.split()) == "VM WAYS OCCUPANCYv OF FULLEST TOTAL/s LOCAL/s REMOTE/s IPC MISSES/s"
    assert " ".join(line.split()) == "web-1 2 ##......... 3M 6M 0:67% ===- =--- 1.5G 1G 512M 1.23 12K"
    for title in ("LOCAL/s", "REMOTE/s", "MISSES/s"):
        end = titles.index(title) + len(title)
        assert line[:end].rstrip() == line[:end] and line[end : end + 2].strip() == ""


def test_the_heading_tells_the_caches_and_what_all_vms_have_together() -> None:
    shown = frame(row("a"), row("b"), row("c", state="pending", reason="no way"))
    first, second, trouble = text(shown)[:3]
    assert first.startswith("vmqos top, ")
    assert first.endswith(", every 2 s, 2 L3 caches of 11 ways, 16.5 MiB")
    assert second == "3 VMs, 2 of 3 promises kept, L3 9 MiB of 33 MiB held, memory 4.5 GiB/s"
    assert trouble == "? pending c: no way"


def test_the_heading_leaves_out_how_often_the_agent_looks_before_it_takes_a_second_line() -> None:
    shown = replace(frame(row("a")), hostname="compute-1017")
    for width, often in ((90, ", every 2 s"), (80, "")):
        first, second = text(shown, Terminal(False, width))[:2]
        assert first.startswith("vmqos top, compute-1017, ")
        assert first.endswith(f" UTC{often}, 2 L3 caches of 11 ways, 16.5 MiB") and second.startswith("1 VM, ")


def test_a_machine_whose_caches_differ_tells_each_kind() -> None:
    shown = frame(cache_ways={0: 11, 1: 11, 2: 16}, cache_bytes={0: MIB, 1: MIB})
    assert text(shown)[0].endswith(", 2 L3 caches of 11 ways, 1 MiB; 1 L3 cache of 16 ways")


def test_the_heading_names_the_host_and_says_where_there_is_no_agent() -> None:
    shown = replace(frame(row("a")), hostname="compute-7\x1b[2J", source="resctrl")
    first = text(shown)[0]
    assert first.startswith("vmqos top, compute-7\\x1b[2J, ")
    assert ", resctrl, 2 L3 caches" in first and "every" not in first


def test_the_totals_say_how_many_vms_have_no_number() -> None:
    none = Reading.none(Missing.NOT_MONITORED)
    shown = frame(row("a"), row("b", occupancy=none, total=none), row("c", state="none", total=none))
    told = (
        "3 VMs, 2 of 2 promises kept, L3 6 MiB of 33 MiB held (1 VM not counted), memory 1.5 GiB/s (2 VMs not counted)"
    )
    assert text(shown)[1] == told
    assert text(frame(row("a", state="none", occupancy=none, total=none)))[1] == "1 VM"


def test_vms_in_trouble_are_listed_above_the_worst_first_and_marked() -> None:
    shown = frame(row("a"), row("b", state="pending", reason="no\nway"), row("c", state="degraded", reason="half"))
    lines = text(shown)
    assert lines[2:4] == ["! degraded c: half", "? pending b: no\\nway"]
    assert [line[:3] for line in lines[5:]] == ["  a", "? b", "! c"]


def test_troubles_leave_room_for_the_vms() -> None:
    rows = [row(f"vm-{number}", state="pending", reason="no way") for number in range(30)]
    lines = text(frame(*rows), room=24)
    assert len(lines) == 24
    assert lines[2:7] == [f"? pending vm-{number}: no way" for number in range(5)]
    assert lines[7] == "25 more pending or degraded: vmqos vm list"
    assert sum(line.startswith("? vm-") for line in lines) == 14


@pytest.mark.parametrize("width", range(30, 160, 7))
@pytest.mark.parametrize("fancy", [True, False])
def test_no_line_is_longer_than_the_terminal(width: int, fancy: bool) -> None:
    rows = [row("数" * 60), row("b", state="degraded", reason="r" * 300), row("c", ways={0: 2, 1: 4, 2: 6})]
    for line in text(frame(*rows, notes=("n" * 300,)), Terminal(fancy, width), room=20):
        assert cell_len(line) <= width


@pytest.mark.parametrize("width", [*range(30, 160, 5), 80])
@pytest.mark.parametrize("fancy", [True, False])
def test_no_word_is_cut_however_narrow_the_terminal_is(width: int, fancy: bool) -> None:
    rows = [
        row("web-1"),
        row("db-1", total=Reading.none(Missing.UNASSIGNED), local=Reading.none(Missing.WENT_BACK)),
        row("big-1", state="pending", reason=REASON, ways={}, ways_requested=6, fills=(), allocated=None),
        row("radio", l2_ways={3: 4}, l2_ways_requested=4, bandwidth={"0": 60, "1": 80}, bandwidth_unit="%"),
    ]
    old = Freshness(("vms",), {"vms": 200.0}, {"4f2c1a9e": "its process can't be read"})
    shown = frame(*rows, notes=(NOTE,), freshness=old)
    whole = {word for line in text(shown, Terminal(fancy, 400)) for word in line.split()}
    for room in (None, 30):
        lines = text(shown, Terminal(fancy, width), room=room)
        assert max(map(cell_len, lines)) <= width
        assert {word for line in lines for word in line.split()} <= whole | {"…", ".."}
    # Where there is room below each other, nothing is left out but columns.
    words = " ".join(" ".join(text(shown, Terminal(fancy, width))).split())
    for sentence in (REASON, NOTE, old.warning, "3 of 4 promises kept"):
        assert sentence in words


@pytest.mark.parametrize("width", range(8, 120, 9))
def test_the_keys_are_named_whole_or_not_at_all(width: int) -> None:
    line = text_view.keys_line(Terminal(False, width))
    assert len(line) <= width
    whole = text_view.keys_line(Terminal(False, 200))
    assert whole.startswith(line) and whole[len(line) : len(line) + 3] in ("", "   ")


def test_what_is_old_is_told_above_everything_with_its_age() -> None:
    shown = frame(row("a", state="pending", reason="no way"), freshness=Freshness(("counters",), {"counters": 75.0}))
    lines = text(shown, Terminal(False, 200))
    assert lines[2] == (
        "what follows is old, although vmqos-agent answers: it last read the counters 1 min 15 s ago; "
        "see 'journalctl -u vmqos-agent'"
    )
    assert lines[3] == "? pending a: no way"


def test_a_vm_that_is_not_served_is_told_above_the_others() -> None:
    lines = text(frame(row("a"), freshness=Freshness(unserved={"4f2c": "no\nprocess"})), Terminal(False, 200))
    assert lines[2] == "VM 4f2c runs and is not served: no\\nprocess"


@pytest.mark.parametrize(("key", "reverse", "title"), [("total", False, "TOTAL/sv"), ("name", True, "VM^")])
def test_the_heading_tells_what_the_vms_are_sorted_by(key: str, reverse: bool, title: str) -> None:
    assert title in text(frame(row("web-1")), order=Order(key, reverse))[2]


@pytest.mark.parametrize(
    ("first", "names", "told"),
    [
        (0, range(0, 6), "1 to 6 of 30 VMs"),
        (7, range(7, 13), "8 to 13 of 30 VMs"),
        (99, range(24, 30), "25 to 30 of 30 VMs"),
    ],
)
def test_more_vms_than_lines_are_scrolled(first: int, names: range, told: str) -> None:
    rows = [row(f"vm-{number:02}") for number in range(30)]
    shown = frame(*rows)
    drawn = text_view.draw(shown, rows, Order(), PLAIN, room=10, first=first)
    lines = [line.plain for line in drawn.lines]
    assert len(lines) == 10
    assert [line.split()[0] for line in lines[3:-1]] == [f"vm-{number:02}" for number in names]
    assert lines[-1] == told
    assert (drawn.first, drawn.count) == (names[0], 6)


def test_vms_that_all_fit_are_not_scrolled() -> None:
    rows = [row(f"vm-{number}") for number in range(7)]
    drawn = text_view.draw(frame(*rows), rows, Order(), PLAIN, room=10, first=5)
    assert (drawn.first, drawn.count, len(drawn.lines)) == (0, 7, 10)


def test_the_chosen_vm_is_marked_and_in_sight() -> None:
    rows = [row(f"vm-{number:02}") for number in range(30)]
    for terminal in (PLAIN, Terminal(True, 120)):
        drawn = text_view.draw(frame(*rows), rows, Order(), terminal, room=10, chosen="vm-09-uuid")
        assert (drawn.first, drawn.count) == (4, 6)
        (line,) = [line for line in drawn.lines if "vm-09" in line.plain]
        assert line.plain.startswith("● vm-09" if terminal.fancy else " >vm-09")
        assert any(span.style == "reverse" for span in line.spans)
    drawn = text_view.draw(frame(*rows), rows, Order(), PLAIN, room=10, first=8, chosen="vm-02-uuid")
    assert drawn.first == 2


def test_a_search_hides_vms_and_changes_no_total_and_no_column() -> None:
    rows = [row("web", total=NOT_COUNTED), row("db")]
    found = [line.plain for line in text_view.draw(frame(*rows), rows, Order(), PLAIN, search="WEB").lines]
    whole = [line.plain for line in text_view.draw(frame(*rows), rows, Order(), PLAIN).lines]
    assert found == [line for line in whole if not line.startswith("  db")]


def test_a_tiny_terminal_still_shows_a_vm() -> None:
    rows = [row(f"vm-{number}", state="pending", reason="no way") for number in range(7)]
    assert text_view.draw(frame(*rows), rows, Order(), PLAIN, room=3).count == 1


def test_a_host_without_vms_says_so() -> None:
    assert text(frame())[-1] == "  no VM"


def test_a_problem_stands_above_what_is_old() -> None:
    assert text(frame(row("a")), problem="no answer\x1b[2J")[2].startswith("no answer\\x1b[2J; what follows is of ")


def test_a_hostile_name_is_not_obeyed() -> None:
    shown = frame(Row(uuid="u", name="\\x1b[2Jevil", state="pending", reason="\x1b]0;owned\x07\u202e"))
    assert not any("\x1b" in line or "\x07" in line or "\u202e" in line for line in text(shown))


def test_the_help_names_every_key_that_sorts() -> None:
    from vmqos.cli.top.live_display import _SORT_KEYS

    told = " ".join(text_view.HELP)
    assert all(word in told for word in ("/ ", "Enter ", "Esc ", "space", "Up, Down"))
    assert all(
        f" {key}  {name[:2]}" in told.lower().replace("llc ", "").replace("total bandwidth", "total")
        for key, name in _SORT_KEYS.items()
    )
    for width in (30, 80, 120):
        lines = [line.plain for line in text_view.help_lines(Terminal(False, width))]
        assert all(cell_len(line) <= width for line in lines)
        assert " ".join(" ".join(lines).split()) == " ".join(told.split())
