# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from vmqos.cli.show import tables, terminal
from vmqos.cli.show.tables import Cell
from vmqos.cli.show.terminal import Terminal

TITLES = ("UUID", "Name", "Group", "Reason")
ROWS = [
    (
        Cell("4f2c1a9e-0f0b", short="4f2c"),
        "web-1",
        "vmqos.4f2c",
        "needs 8 free ways on cache 0 and only 3 are free now",
    ),
    (Cell("7d01e4c2-55b1", short="7d01"), "db", "", ""),
]


def text(titles: Sequence[str], rows: Sequence[Sequence[Any]], width: int, fancy: bool = False, **options: Any) -> str:
    stream, screen = io.StringIO(), Terminal(fancy=False, width=width)
    shape = Terminal(fancy=fancy, width=width)
    terminal.show(tables.draw(titles, rows, shape, width, **options), stream, screen, width)
    return stream.getvalue()


def test_a_wide_terminal_shows_everything_in_full() -> None:
    lines = text(TITLES, ROWS, 120).splitlines()
    assert lines[1].split("|")[1:-1] == [" UUID          ", " Name  ", " Group      ", f" Reason{' ' * 47}"]
    assert "4f2c1a9e-0f0b" in lines[3]
    assert "only 3 are free now" in lines[3]


def test_a_narrow_terminal_gets_short_forms_before_anything_is_lost() -> None:
    shown = text(TITLES, ROWS, 60)
    assert "4f2c1a9e" not in shown
    assert "4f2c" in shown
    assert "vmqos.4f2c" in shown
    assert max(map(len, shown.splitlines())) <= 60


def test_columns_that_are_missed_least_give_way_and_are_named() -> None:
    shown = text(TITLES, ROWS, 50, optional=("Group", "UUID"))
    assert "vmqos.4f2c" not in shown
    assert "web-1" in shown
    assert "No room for: Group" in shown


@given(st.integers(46, 200), st.booleans(), st.text(max_size=300))
def test_a_table_is_as_wide_as_the_terminal_at_most(width: int, fancy: bool, reason: str) -> None:
    rows = [(Cell("4f2c1a9e-0f0b", short="4f2c"), "x" * 100, "y" * 100, reason)]
    assert max(map(cell_len, text(TITLES, rows, width, fancy).splitlines())) <= width


@pytest.mark.parametrize("fancy", [True, False])
def test_what_is_in_a_cell_can_not_steer_the_terminal(fancy: bool) -> None:
    rows = [("\x1b[2J", Cell("\x1b]0;x\x07"), "a\nb", "[bold]:smile:")]
    shown = text(TITLES, rows, 100, fancy)
    assert "\x1b" not in shown
    assert r"\x1b[2J" in shown
    assert "[bold]:smile:" in shown
    assert "\x07" not in shown


def test_numbers_stand_to_the_right() -> None:
    assert text(("TID", "Name"), [(7, "a"), (1234, "b")], 80).splitlines()[3] == "|    7 | a    |"


def test_a_cell_sorts_by_its_value_and_not_by_its_looks() -> None:
    assert sorted([Cell(2, "a"), Cell(1, "b")])[0].machine_readable() == 1


@pytest.mark.parametrize(("fancy", "left_out"), [(True, "Group"), (False, "UUID, Group")])
def test_columns_give_way_before_a_name_is_cut(fancy: bool, left_out: str) -> None:
    name = "instance-0000001a-frontend-web"
    rows = [(Cell("4f2c1a9e-0f0b", short="4f2c1a9e"), name, "vmqos.4f2c1a9e", "needs 8 free ways")]
    shown = text(TITLES, rows, 60, fancy, optional=("Group", "UUID"))
    assert name in shown
    assert f"No room for: {left_out} (" in shown


@pytest.mark.parametrize("fancy", [True, False])
@pytest.mark.parametrize("width", range(30, 70))
def test_no_title_is_broken_where_columns_can_give_way(width: int, fancy: bool) -> None:
    rows = [(Cell("4f2c1a9e-0f0b", short="4f2c1a9e"), "ci-runner-07", "vmqos.4f2c1a9e", "")]
    table = text(TITLES, rows, width, fancy, optional=("Group", "UUID")).partition("No room")[0]
    assert set(table.replace("|", " ").split()) & set(TITLES) >= {"Name", "Reason"}
    assert "ci-runner-07" in table
