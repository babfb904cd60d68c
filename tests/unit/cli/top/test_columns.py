# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from tests.unit.cli.top.rows import MIB, PLAIN, REASON, frame, row, text
from vmqos.cli.show.fullness import Fill
from vmqos.cli.show.terminal import Terminal
from vmqos.telemetry import Missing, Reading

NOT_COUNTED = Reading.none(Missing.NO_COUNTER)
FULL_AND_EMPTY = (Fill(0, 6186598, 6 * MIB), Fill(1, 0, 6 * MIB))


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


@pytest.mark.parametrize(("share", "cells"), [(None, "1.23 12K"), (0.995, "1.23 12K"), (0.6, "~1.23 ~12K")])
def test_an_estimate_of_what_was_executed_looks_like_one(share: float | None, cells: str) -> None:
    assert text(frame(row("web-1", share=share)), Terminal(False, 140))[3].split()[-2:] == cells.split()


def test_a_pipe_has_every_column_and_every_word() -> None:
    shown = frame(row("x" * 60, state="pending", reason=REASON * 4))
    lines = text(shown, Terminal(False, 40, bounded=False))
    assert lines[2] == f"? pending {'x' * 60}: {REASON * 4}"
    assert lines[3].split()[-1] == "MISSES/s"
    assert lines[4].startswith(f"? {'x' * 60}  ")


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


@pytest.mark.parametrize(
    ("value", "short"),
    [(0, "0"), (999, "999"), (1000, "1K"), (1536, "1.5K"), (10 * MIB, "10M"), (1023 * MIB, "1G"), (2**60, "1048576T")],
)
def test_bytes_are_three_digits_and_a_unit(value: int, short: str) -> None:
    assert short in text(frame(row("a", total=Reading(value))))[3].split()


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
