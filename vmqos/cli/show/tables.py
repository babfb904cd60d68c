# SPDX-License-Identifier: Apache-2.0
"""Tables that fit the terminal they are shown in."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from cliff.columns import FormattableColumn
from cliff.formatters.base import ListFormatter, SingleFormatter
from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vmqos.cli.show import terminal as terminals
from vmqos.cli.show.safe_text import neutralise
from vmqos.cli.show.terminal import Terminal

_NARROWEST = 24
"""Columns below which the last cell of a row, the one that is wrapped, is hard to read."""
_WIDE = 40
"""Columns that other cells have at most where room is scarce."""
_LEAST = 8
"""Columns that are left of any other cell."""


class Cell(FormattableColumn[Any]):
    """A table's cell that looks different from its value.

    :param value: what ``-f csv`` and ``-f value`` print, and what rows are sorted by.
    :param text: what the table shows; the value if ``None``.
    :param style: a rich style for it.
    :param short: what the table shows where the terminal is too narrow for all of it.
    """

    def __init__(self, value: Any, text: str | None = None, style: str = "", short: str | None = None) -> None:
        super().__init__(value)
        self.text = str(value) if text is None else text
        self.style = style
        self.short = self.text if short is None else short

    def human_readable(self) -> str:
        """What the table shows where there is room."""
        return self.text


class TableFormatter(ListFormatter, SingleFormatter):
    """Draws ``-f table`` for a terminal: cliff's own knows neither colours nor which cells may be cut.

    The options ``--max-width``, ``--fit-width`` and ``--print-empty`` are those of cliff's table formatter.

    :param terminal: where the table goes.
    :param optional: titles of columns that may be left out, see :func:`draw`.
    """

    def __init__(self, terminal: Terminal, optional: Sequence[str] = ()) -> None:
        self._terminal = terminal
        self._optional = optional

    def add_argument_group(self, parser: argparse.ArgumentParser) -> None:
        """Add nothing: cliff's table formatter has added the options already."""

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write one row an item, the names as the heading."""
        rows = [list(row) for row in data]
        if rows or parsed_args.print_empty:
            self._emit(column_names, rows, stdout, parsed_args)

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: argparse.Namespace
    ) -> None:
        """Write one row a field."""
        rows = [[Cell(name, style="bold"), value] for name, value in zip(column_names, data, strict=True)]
        self._emit(("Field", "Value"), rows, stdout, parsed_args)

    def _emit(
        self, titles: Sequence[str], rows: list[list[Any]], stdout: TextIO, parsed_args: argparse.Namespace
    ) -> None:
        width = self._terminal.width if parsed_args.fit_width else self._terminal.room
        width = parsed_args.max_width if parsed_args.max_width > 0 else width
        terminals.show(draw(titles, rows, self._terminal, width, self._optional), stdout, self._terminal, width)


def draw(
    titles: Sequence[str], rows: Sequence[Sequence[Any]], terminal: Terminal, width: int, optional: Sequence[str] = ()
) -> RenderableType:
    """A table that takes no more than ``width`` columns, where that can be.

    What gives way, in this order: cells are shown in their short form, ``optional`` columns are left out (a line below
    says which), the widest columns are cut, and the last one is wrapped, whose text is never cut.

    :param optional: titles of columns that are missed least, the least important first.
    """
    layout = _lay_out(titles, rows, terminal, width, optional)
    if terminal.fancy:
        table = Table(
            box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), border_style="dim", header_style="bold"
        )
    else:
        table = Table(box=box.ASCII2)
    for index in layout.columns:
        numbers = bool(rows) and all(isinstance(_value(row[index]), int) for row in rows)
        table.add_column(
            titles[index],
            justify="right" if numbers else "left",
            overflow="fold" if index == layout.columns[-1] else "ellipsis",
            no_wrap=index != layout.columns[-1],
            width=layout.widths[index],
        )
    for row in rows:
        table.add_row(*(_drawn(row[index], layout.short) for index in layout.columns))
    left_out = [title for index, title in enumerate(titles) if index not in layout.columns]
    if not left_out:
        return table
    return Group(table, Text(f"No room for: {', '.join(left_out)} (-c chooses columns)", style="dim"))


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which columns are shown, by index, how wide each is, and whether in short form."""

    columns: list[int]
    widths: dict[int, int]
    short: bool


def _lay_out(
    titles: Sequence[str], rows: Sequence[Sequence[Any]], terminal: Terminal, width: int, optional: Sequence[str]
) -> _Layout:
    columns = list(range(len(titles)))
    droppable = [titles.index(title) for title in optional if title in titles]
    layout = _Layout(columns, {}, False)
    for short, dropped in [(False, 0), *((True, count) for count in range(len(droppable) + 1))]:
        kept = [index for index in columns if index not in droppable[:dropped]]
        widths = {index: _widest(titles[index], [row[index] for row in rows], short) for index in kept}
        if short:
            widths = {index: width if index == kept[-1] else min(width, _WIDE) for index, width in widths.items()}
        frame = 2 * len(kept) - 1 if terminal.fancy else 3 * len(kept) + 1
        excess = sum(widths.values()) + frame - width
        layout = _Layout(kept, widths, short)
        if excess <= 0 or widths[kept[-1]] - excess >= _NARROWEST:
            break
    last = layout.columns[-1]
    while excess > 0:
        floor = _NARROWEST if widths[last] > _NARROWEST else widths[last]
        widest = last if widths[last] > floor else max(widths, key=lambda index: widths[index])
        if widest != last and widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
        excess -= 1
    return layout


def _widest(title: str, values: Sequence[object], short: bool) -> int:
    lines = [line for value in values for line in _drawn(value, short).plain.split("\n")]
    return max(cell_len(line) for line in [title, *lines])


def _drawn(value: object, short: bool) -> Text:
    if not isinstance(value, Cell):
        return Text(_text(value))
    return Text(neutralise_lines(value.short) if short else _text(value), style=value.style)


def _value(value: object) -> object:
    return value.machine_readable() if isinstance(value, Cell) else value


def _text(value: object) -> str:
    text = value.text if isinstance(value, Cell) else "" if value is None else str(value)
    return neutralise_lines(text)


def neutralise_lines(text: str) -> str:
    """The text made safe for a terminal, its line breaks kept: a cell may have several lines."""
    return "\n".join(map(neutralise, text.split("\n")))
