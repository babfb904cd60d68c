# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from vmqos.cli.show.freshness import Freshness
from vmqos.cli.show.fullness import Fill
from vmqos.cli.show.terminal import Terminal
from vmqos.cli.top import text_view
from vmqos.cli.top.data import Frame, Order, Row
from vmqos.telemetry import Missing, Reading

MIB = 1 << 20
PLAIN = Terminal(False, 120)
NOT_COUNTED = Reading.none(Missing.NO_COUNTER)


def row(name: str, **fields: Any) -> Row:
    known = {
        "state": "kept",
        "policy": "exclusive",
        "ways": {0: 2, 1: 2},
        "ways_requested": 2,
        "allocated": 6 * MIB,
        "fills": (Fill(0, 2 * MIB, 3 * MIB), Fill(1, 1 * MIB, 3 * MIB)),
        "occupancy": Reading(3 * MIB),
        "total": Reading(1536.0 * MIB),
        "local": Reading(1024.0 * MIB),
        "remote": Reading(512.0 * MIB),
        "ipc": Reading(1.234),
        "misses": Reading(12345.6),
    }
    return Row(uuid=f"{name}-uuid", name=name, instance_name=name, **(known | fields))


def frame(*rows: Row, **fields: Any) -> Frame:
    known = {"cache_ways": {0: 11, 1: 11}, "cache_bytes": {0: 17301504, 1: 17301504}}
    return Frame(1794000000.0, 2.0, "agent", rows, **(known | fields))


def text(shown: Frame, terminal: Terminal = PLAIN, order: Order | None = None, **options: Any) -> list[str]:
    drawn = text_view.draw(shown, shown.rows, order or Order(), terminal, **options)
    return [line.plain for line in drawn.lines]


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


@pytest.mark.parametrize(
    ("fields", "cell"),
    [
        ({}, "2"),
        ({"ways": {0: 2, 1: 4}}, "0:2 1:4/2"),
        ({"ways": {}}, "0/2"),
        ({"ways": {}, "ways_requested": None}, "-"),
        ({"ways": {0: 4}, "ways_requested": None}, "4"),
        ({"ways": {0: 2}, "ways_requested": 4}, "2/4"),
    ],
)
def test_ways_are_those_it_has_and_those_it_asks_for_where_it_has_others(fields: dict[str, Any], cell: str) -> None:
    line = text(frame(row("web-1", **fields)))[3]
    assert f" {cell}  " in line


@pytest.mark.parametrize(
    ("missing", "word"),
    [
        (Missing.UNAVAILABLE, "no value"),
        (Missing.UNASSIGNED, "unassigned"),
        (Missing.NOT_MONITORED, "no group"),
        (Missing.NO_PREVIOUS, "..."),
        (Missing.WENT_BACK, "began anew"),
        (Missing.ERROR, "error"),
        (Missing.VANISHED, "vanished"),
        (Missing.UNREADABLE, "unreadable"),
        (Missing.NO_COUNTER, "none"),
    ],
)
def test_what_has_no_number_has_a_word_that_fits_and_no_zero(missing: Missing, word: str) -> None:
    none = Reading.none(missing)
    shown = frame(
        row("a"), row("b", occupancy=none, fills=(), total=none, local=none, remote=none, ipc=none, misses=none)
    )
    line = text(shown)[4]
    assert line.count(f" {word}") == 6
    assert " 0" not in line
    assert cell_len(line) <= PLAIN.width


def test_what_the_machine_does_not_count_is_left_out() -> None:
    shown = frame(row("a", local=NOT_COUNTED, remote=NOT_COUNTED, ipc=NOT_COUNTED, misses=NOT_COUNTED), notes=("Why.",))
    lines = text(shown)
    assert lines[2].split()[-1] == "TOTAL/s"
    assert lines[-1] == "Why."


def test_power_and_stalls_have_columns_where_any_vm_has_them() -> None:
    none = Reading.none(Missing.NO_PREVIOUS)
    ungrouped = Reading.none(Missing.NOT_MONITORED)
    shown = frame(row("a", watts=Reading(12.34), stalls=Reading(0.256)), row("b", watts=none, stalls=none), row("c"))
    titles, *lines = (line.split() for line in text(shown, Terminal(False, 200))[2:6])
    assert titles[-3:] == ["MISSES/s", "WATTS", "STALLED"]
    assert [line[-2:] for line in lines[:2]] == [["12.3", "26%"], ["...", "..."]]
    assert " ".join(lines[2]).endswith("no group no group")
    for words in (NOT_COUNTED, ungrouped):
        lines = text(frame(row("a", watts=words, stalls=words)), Terminal(False, 200))
        assert lines[2].split()[-1] == "MISSES/s"


REASON = "L3 cache 0 has 3 ways to give in one piece and 6 are asked for: of its 11 ways 6 are other VMs'"
NOTE = "No IPC and no LLC misses: this kernel gives no hardware events, as in most virtual machines"


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


def test_a_pipe_has_every_column_and_every_word() -> None:
    shown = frame(row("x" * 60, state="pending", reason=REASON * 4))
    lines = text(shown, Terminal(False, 40, bounded=False))
    assert lines[2] == f"? pending {'x' * 60}: {REASON * 4}"
    assert lines[3].split()[-1] == "MISSES/s"
    assert lines[4].startswith(f"? {'x' * 60}  ")


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


FULL_AND_EMPTY = (Fill(0, 6186598, 6 * MIB), Fill(1, 0, 6 * MIB))


def test_one_full_cache_is_told_as_full_whatever_is_on_the_other() -> None:
    uneven = row("uneven", occupancy=Reading(6186598), allocated=12 * MIB, fills=FULL_AND_EMPTY)
    line = text(frame(uneven), Terminal(False, 140))[3]
    assert "5.9M  12M      0:98%  ==== ----" in line
    assert "0:98%  ==== ----" in text(frame(uneven), Terminal(False, 80))[3]
    # Where there is little room it is the bars that go, not the number.
    assert "0:98%" in text(frame(uneven), Terminal(False, 50))[-1]


@pytest.mark.parametrize(
    ("count", "fancy", "bars"),
    [
        (1, False, "========"),
        (2, False, "==== ----"),
        (3, False, "== -- --"),
        (5, False, "=----"),
        (5, True, "█▁▁▁▁"),
        (17, False, ""),
    ],
)
def test_there_is_a_bar_for_each_cache(count: int, fancy: bool, bars: str) -> None:
    caches = dict.fromkeys(range(count), 11)
    fills = tuple(Fill(cache, 0 if cache else 3 * MIB, 3 * MIB) for cache in range(count))
    shown = frame(row("a", ways={}, fills=fills), cache_ways=caches, cache_bytes={})
    line = text(shown, Terminal(fancy, 200))[3]
    assert line.split("100%")[1].split("1.5G")[0].strip() == bars


def test_a_cache_where_a_vm_was_promised_nothing_has_no_bar() -> None:
    fills = (Fill(1, 3 * MIB, 3 * MIB),)
    line = text(frame(row("a", fills=fills)), Terminal(False, 200))[3]
    assert "1:100%       ====" in line


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (140, "VM WAYS OCCUPANCYv OF FULLEST TOTAL/s LOCAL/s REMOTE/s IPC MISSES/s"),
        (96, "VM WAYS OCCUPANCYv OF FULLEST TOTAL/s LOCAL/s REMOTE/s"),
        (80, "VM WAYS OCCUPANCYv OF FULLEST TOTAL/s"),
        (55, "VM WAYS OCCUPANCYv FULLEST TOTAL/s"),
        (46, "VM WAYS OCCUPANCYv FULLEST"),
        (36, "VM OCCUPANCYv FULLEST"),
        (30, "VM OCCUPANCYv"),
    ],
)
def test_a_narrow_terminal_shows_what_matters_most(width: int, titles: str) -> None:
    assert text(frame(row("web-1")), Terminal(False, width))[-2].split() == titles.split()


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


@pytest.mark.parametrize(
    ("value", "short"),
    [(0, "0"), (999, "999"), (1000, "1K"), (1536, "1.5K"), (10 * MIB, "10M"), (1023 * MIB, "1G"), (2**60, "1048576T")],
)
def test_bytes_are_three_digits_and_a_unit(value: int, short: str) -> None:
    assert short in text(frame(row("a", total=Reading(value))))[3].split()


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


def test_l2_ways_and_limits_have_columns_where_somebody_has_some() -> None:
    limited = {"bandwidth": {"0": 60, "1": 60}, "bandwidth_unit": "%", "is_limited": True}
    rows = [
        row("a", l2_ways={3: 4, 7: 4}, l2_ways_requested=4, **limited),
        row("b", l2_ways_requested=2, is_limited=True),
        row("c", l2_ways={3: 4, 7: 2}, l2_ways_requested=4, bandwidth={"0": 1250}, bandwidth_unit="MB/s"),
        row("d"),
    ]
    titles, *lines = text(frame(*rows), Terminal(False, 140))[2:7]
    assert titles.split()[1:4] == ["WAYS", "L2", "LIMIT"]
    shown = [line[titles.index("L2") - 2 : titles.index("OCC")].split("  ") for line in lines]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in shown]
    assert cells == [["4", "60 %"], ["0/2", "none"], ["2/4", "1250 MB/s"], ["-", "-"]]
    assert "L2" not in text(frame(row("d")))[2] and "LIMIT" not in text(frame(row("d")))[2]


@pytest.mark.parametrize(
    ("age", "told"), [(23.4, "~1.5G 23s"), (95.0, "~1.5G 1m"), (7300.0, "~1.5G 2h"), (2e5, "~1.5G 2d")]
)
def test_the_last_bandwidth_of_a_vm_that_waits_for_counters_is_marked_and_has_its_age(age: float, told: str) -> None:
    none = Reading.none(Missing.UNASSIGNED)
    measured = {"total": 1.5 * 2**30, "local": None, "remote": None}
    line = text(frame(row("a", total=none, local=none, remote=none, measured=measured, measured_age=age)))[3]
    assert told in line
    assert line.count("unassigned") == 2
    assert cell_len(line) <= PLAIN.width
