# SPDX-License-Identifier: Apache-2.0
"""The columns of ``vmqos top``: which there are, and what a VM has in each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from vmqos.cli.show import fullness, no_number
from vmqos.cli.show.safe_text import pad, squeeze
from vmqos.cli.show.terminal import Terminal
from vmqos.cli.top import grants
from vmqos.cli.top.data import Frame, Row
from vmqos.telemetry import Missing, Reading

_LEAST_NAME = 12
MOST_NAME = 40
"""Columns of a VM's name in a terminal."""
_BARS = 8
"""Columns of the bars of all caches together, but one for each at the least."""
_MOST_BARS = 16
_MOST_WAYS = 24
_MOST_OPTIONAL = 8
"""The column that is missed least."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, what it is sorted by, and how a row's cell looks.

    :ivar optional: the higher, the sooner it is left out where room is scarce; 0: never.
    """

    title: str
    key: str
    width: int
    draw: Callable[[Row], Text]
    optional: int = 0
    left: bool = False


def fitting(frame: Frame, rows: Sequence[Row], terminal: Terminal) -> list[Column]:
    """Those that the machine has numbers for and that there is room for."""
    wide = min(max(frame.cache_ways.values(), default=0), _MOST_WAYS)
    caches = sorted(frame.cache_ways)
    several = len(caches) > 1
    columns = [
        Column("WAYS", "ways", _widest("WAYS ", rows, grants.ways), lambda row: Text(grants.ways(row)), 2),
        Column("", "", wide, lambda row: grants.bar(row, wide, terminal), 8, True),
        Column("L2", "", _some_l2(rows), lambda row: Text(grants.l2_ways(row)), 4),
        Column("LIMIT", "", _some_limit(rows), lambda row: Text(grants.limit(row)), 4),
        Column("OCCUPANCY", "occupancy", 10, lambda row: number(row.occupancy, short_bytes)),
        Column("OF", "", 5, lambda row: Text("" if row.allocated is None else short_bytes(row.allocated)), 4, True),
        Column("FULLEST", "", _some_full(rows, several), lambda row: _fullest(row, several), 1),
        Column("", "", _bars_width(rows, caches), lambda row: _bars(row, caches, terminal), 5, True),
        Column("TOTAL/s", "total", 10, lambda row: _bandwidth(row, row.total, "total"), 3),
        Column("LOCAL/s", "local", 10, lambda row: _bandwidth(row, row.local, "local"), 6),
        Column("REMOTE/s", "remote", 10, lambda row: _bandwidth(row, row.remote, "remote"), 6),
        Column("IPC", "ipc", 10, lambda row: _executed(row, row.ipc, "{:.2f}".format), 7),
        Column("MISSES/s", "misses", 10, lambda row: _executed(row, row.misses, short_count), 7),
        Column("WATTS", "watts", 8, lambda row: number(row.watts, "{:.1f}".format), 7),
        Column("STALLED", "stalls", 8, lambda row: number(row.stalls, "{:.0%}".format), 7),
    ]
    for title, readings in (
        ("OCCUPANCY", [row.occupancy for row in rows]),
        ("TOTAL/s", [row.total for row in rows]),
        ("LOCAL/s", [row.local for row in rows]),
        ("REMOTE/s", [row.remote for row in rows]),
        ("IPC", [row.ipc for row in rows]),
        ("MISSES/s", [row.misses for row in rows]),
    ):
        if all(reading.missing is Missing.NO_COUNTER for reading in readings):
            columns = [column for column in columns if column.title != title]
    for title, readings in (("WATTS", [row.watts for row in rows]), ("STALLED", [row.stalls for row in rows])):
        # Few processors count these, so that no VM is in a group says nothing of them.
        if all(reading.missing in (Missing.NO_COUNTER, Missing.NOT_MONITORED) for reading in readings):
            columns = [column for column in columns if column.title != title]
    columns = [column for column in columns if column.width or not column.optional]
    return _with_room(columns, rows, terminal)


def _with_room(columns: Sequence[Column], rows: Sequence[Row], terminal: Terminal) -> list[Column]:
    """Those of the columns that there is room for, and the VM's name before them, which has what is left."""
    longest = max((cell_len(row.title) for row in rows), default=0)
    name = max(_LEAST_NAME, min(MOST_NAME, longest) if terminal.bounded else longest)
    for level in range(_MOST_OPTIONAL, 0, -1):
        if sum(2 + column.width for column in columns) + 2 + name <= terminal.room:
            break
        columns = [column for column in columns if column.optional < level]
    left = terminal.room - 2 - sum(2 + column.width for column in columns)
    width = max(_LEAST_NAME, min(name, left))
    return [Column("VM", "name", width, lambda row: Text(_fit(row.title, width, terminal)), left=True), *columns]


def _some_l2(rows: Sequence[Row]) -> int:
    return _widest("L2", rows, grants.l2_ways) if any(row.l2_ways or row.l2_ways_requested for row in rows) else 0


def _some_limit(rows: Sequence[Row]) -> int:
    return _widest("LIMIT", rows, grants.limit) if any(row.bandwidth or row.is_limited for row in rows) else 0


def _widest(title: str, rows: Sequence[Row], text: Callable[[Row], str]) -> int:
    return max([len(title), *(len(text(row)) for row in rows)])


def _some_full(rows: Sequence[Row], several: bool) -> int:
    if not any(row.fills for row in rows):
        return 0
    return _widest("FULLEST", rows, lambda row: fullness.told(row.fills, several))


def _fullest(row: Row, several: bool) -> Text:
    return Text(fullness.told(row.fills, several))


def _bar_width(caches: Sequence[int]) -> int:
    return max(1, _BARS // len(caches)) if caches else 0


def _bars_width(rows: Sequence[Row], caches: Sequence[int]) -> int:
    """The width of the bars side by side, with blanks between wide ones; 0 where bars would say nothing."""
    if not any(row.fills for row in rows) or len(caches) > _MOST_BARS:
        return 0
    each = _bar_width(caches)
    return len(caches) * each + (len(caches) - 1) * (each > 1)


def _bars(row: Row, caches: Sequence[int], terminal: Terminal) -> Text:
    """A bar for each cache, in the order of the caches; blank where the VM was promised nothing."""
    each, drawn = _bar_width(caches), {one.cache: one for one in row.fills}
    bars = (fullness.bar(drawn[cache], each, terminal) if cache in drawn else " " * each for cache in caches)
    return Text((" " if each > 1 else "").join(bars), style="color(114)")


def number(reading: Reading, text: Callable[[float], str]) -> Text:
    """A reading, or in a word why there is none."""
    if reading.value is not None:
        return Text(text(reading.value))
    assert reading.missing is not None
    return Text(no_number.word(reading.missing), style="dim")


def _bandwidth(row: Row, reading: Reading, name: str) -> Text:
    """A bandwidth; where the VM waits for hardware counters, its last one and how old that is: ``~1.5M 23s``."""
    last = row.measured.get(name)
    if reading.value is not None or last is None or row.measured_age is None:
        return number(reading, short_bytes)
    return Text(f"~{short_bytes(last)} {_short_age(row.measured_age)}", style="dim")


def _executed(row: Row, reading: Reading, text: Callable[[float], str]) -> Text:
    """What the VM's tasks executed; with a ``~`` before an estimate."""
    return number(reading, lambda value: f"~{text(value)}" if row.is_estimate else text(value))


def _short_age(seconds: float) -> str:
    """Seconds in the largest unit, such as ``23s``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def short_bytes(value: float) -> str:
    """Bytes in three digits and a binary unit, such as ``1.5M``."""
    return _short(value, 1024)


def short_count(value: float) -> str:
    """A number in three digits and a decimal unit, such as ``1.5M``."""
    return _short(value, 1000)


def _short(value: float, step: int) -> str:
    units_left = ["", "K", "M", "G", "T"]
    while value >= 999.5 and len(units_left) > 1:
        value /= step
        units_left.pop(0)
    digits = 0 if value >= 9.95 or units_left[0] == "" else 1
    return f"{value:.{digits}f}".removesuffix(".0") + units_left[0]


def _fit(text: str, width: int, terminal: Terminal) -> str:
    return pad(squeeze(text, width, terminal.glyph("…", "..")), width)
