# SPDX-License-Identifier: Apache-2.0
"""How ``vmqos top`` looks: one look at the VMs as lines that fit the terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from vmqos.cli.show import units, utc
from vmqos.cli.show.safe_text import neutralise, squeeze
from vmqos.cli.show.terminal import Terminal, wrapped
from vmqos.cli.top import columns, data
from vmqos.cli.top.columns import MOST_NAME, Column
from vmqos.cli.top.data import Frame, Order, Row, is_troubled

DETAIL_KEYS = ("q quit", "Esc back", "arrows scroll", "space look at once", "? help")
_KEYS = ("q quit", "? help", "/ search", "Enter one VM", "arrows move", "o t l r i m w s n sort", "R reverse")
HELP = (
    "q, Ctrl-C    quit                        h, ?         this help",
    "Up, Down     the VM above, below         PgUp, PgDn   a page up, down",
    "Home, End    the first, the last VM      space        look at once",
    "Enter        one VM in detail            Esc          back; all VMs again",
    "/            search: only VMs with a text in name, UUID or flavor",
    "R            sort the other way round",
    "",
    "Sort by:  o  occupancy   t  total bandwidth   l  local   r  remote",
    "          i  IPC         m  LLC misses        w  ways    s  state    n  name",
    "          p  watts       c  stalls, the share of cycles",
    "",
    "OCCUPANCY is what the VM holds of all L3 caches together, OF how many bytes it was promised: 1.5M is 1.5 MiB. "
    "FULLEST is the cache where its ways are fullest, and how full they are there; then comes a bar for each cache. "
    "2c+4d are two ways for code and four for data. ~1.5M 23s is a bandwidth of 23 seconds ago: other VMs have the "
    "hardware counters now. LIMIT is the memory bandwidth that it may have. WATTS is the power of its CPU cores, and "
    "STALLED is the share of its cycles that went by waiting for memory. MISSES/s are those of the last-level cache, "
    "on AMD's processors those of a core's L2; ~1.23 is an estimate. A word in place of "
    "a number is the reason why there is none; see 'vmqos help top'.",
)

STYLES = {"degraded": "bold red", "pending": "bold yellow", "kept": "green", "none": "dim"}
_MARKS = {"degraded": ("▲", "!"), "pending": ("◔", "?"), "kept": ("●", " "), "none": ("○", " ")}


@dataclass(frozen=True, slots=True)
class Shown:
    """The lines of a look.

    :ivar first: how many rows are scrolled past.
    :ivar count: how many rows there was room for.
    """

    lines: list[Text]
    first: int
    count: int


def draw(
    frame: Frame,
    rows: Sequence[Row],
    order: Order,
    terminal: Terminal,
    *,
    room: int | None = None,
    first: int = 0,
    problem: str = "",
    chosen: str = "",
    search: str = "",
) -> Shown:
    """Draw a look.

    :param rows: the VMs to list, in their order, those that a search leaves out among them.
    :param room: how many lines there are for all of it; ``None`` for as many as it takes.
    :param first: how many rows to scroll past.
    :param problem: why there is no newer look; empty if there is no such reason.
    :param chosen: the UUID of the VM that the operator has moved to, which is seen wherever ``first`` is.
    :param search: list only the VMs that have this text, see :func:`vmqos.cli.top.data.search`.
    """
    above = wrapped(_heading(frame, rows, terminal), terminal)
    above += _within(wrapped(urgent(frame, problem), terminal), None if room is None else max(1, room // 4), terminal)
    above += _troubles(rows, terminal, None if room is None else max(1, room // 4))
    notes = wrapped((Text(neutralise(note), style="dim") for note in frame.notes), terminal)
    below = _within(notes, None if room is None else max(1, room // 6), terminal)
    every = len(rows)
    shown = columns.fitting(frame, rows, terminal)
    rows = data.search(rows, search)
    listed, first = rows, first if room is not None else 0
    if room is not None:
        page = max(1, room - len(above) - len(below) - 1)
        if len(rows) > page:
            page = max(1, page - 1)
            at = next((index for index, row in enumerate(rows) if row.uuid == chosen), None)
            if at is not None:
                first = max(at - page + 1, min(first, at))
            first = max(0, min(first, len(rows) - page))
            below.insert(0, Text(f"{first + 1} to {first + page} of {len(rows)} VMs", style="dim"))
        else:
            first = 0
        listed = rows[first : first + page]
    table = [_titles(shown, order, terminal)]
    table += [_line(row, shown, terminal, is_chosen=row.uuid == chosen) for row in listed]
    if not rows:
        table.append(Text(f"  none of {every} VMs has this text" if every else "  no VM", style="dim"))
    lines = [*above, *table, *below]
    return Shown(lines if room is None else [_cut(line, terminal.width) for line in lines], first, len(listed))


def _heading(frame: Frame, rows: Sequence[Row], terminal: Terminal) -> Iterator[Text]:
    dot = terminal.glyph(" · ", ", ")
    yield title(frame, terminal, _caches(frame))
    yield Text(dot.join(_totals(frame, rows)))


def title(frame: Frame, terminal: Terminal, *further: str) -> Text:
    """The first line: where and when the operator looks. How often the agent does gives way to what is further told."""
    dot = terminal.glyph(" · ", ", ")
    often = f"every {frame.interval:g} s" if frame.interval else ""
    source = often if frame.source == "agent" else "resctrl"
    parts = [neutralise(frame.hostname), utc.time_of_day(frame.taken_at), source, *further]
    line = Text.assemble(("vmqos top", "bold"), dot, dot.join(filter(None, parts)))
    if further and source == often and line.cell_len > terminal.room:
        parts.remove(often)
        line = Text.assemble(("vmqos top", "bold"), dot, dot.join(filter(None, parts)))
    return line


def _totals(frame: Frame, rows: Sequence[Row]) -> Iterator[str]:
    """What the VMs have together, of what the host has, and what all else on it moves."""
    kept, made = data.promises(rows)
    promises = f", {kept} of {made} promise{'' if made == 1 else 's'} kept" if made else ""
    yield f"{len(rows)} VM{'' if len(rows) == 1 else 's'}{promises}"
    held, moved = data.total(row.occupancy for row in rows), data.total(row.total for row in rows)
    if held.value is not None:
        every = sum(frame.cache_bytes.values())
        of = f" of {units.size(every)}" if every else ""
        yield f"L3 {units.size(held.value)}{of} held{_left_out(held)}"
    if moved.value is not None:
        rest = "" if frame.rest is None else f", and {units.size(frame.rest)}/s outside of VMs"
        yield f"memory {units.size(moved.value)}/s{_left_out(moved)}{rest}"


def _left_out(sum_of: data.Total) -> str:
    count = sum_of.left_out
    return f" ({count} VM{'' if count == 1 else 's'} not counted)" if count else ""


def _caches(frame: Frame) -> str:
    kinds: dict[str, int] = {}
    for cache, ways in frame.cache_ways.items():
        size = frame.cache_bytes.get(cache)
        kind = f"{ways} ways{f', {units.size(size)}' if size else ''}"
        kinds[kind] = kinds.get(kind, 0) + 1
    return "; ".join(f"{count} L3 cache{'' if count == 1 else 's'} of {kind}" for kind, count in kinds.items())


def urgent(frame: Frame, problem: str) -> list[Text]:
    """Why what is shown is not what is, a line for each reason.

    :param problem: why there is no newer look; empty if there is no such reason.
    """
    told = [neutralise(text) for text in _old(frame, problem)]
    return [Text(text, style="bold red") for text in (*told, *frame.freshness.missing)]


def _old(frame: Frame, problem: str) -> Iterator[str]:
    """Why what is shown is older than it looks."""
    if problem:
        clock = utc.time_of_day(frame.taken_at)
        yield f"{problem}; what follows is of {clock}"
    elif frame.freshness.warning:
        yield frame.freshness.warning


def _troubles(rows: Sequence[Row], terminal: Terminal, most: int | None) -> list[Text]:
    """What each VM lacks, the most urgent first, and how many more there are than ``most`` lines have room for."""
    urgency = list(STYLES)
    troubled = sorted((row for row in rows if is_troubled(row)), key=lambda row: urgency.index(row.state))
    lines: list[Text] = []
    for index, row in enumerate(troubled):
        told = Text.assemble(
            (f"{_mark(row, terminal)} {row.state} ", STYLES[row.state]),
            (
                f"{squeeze(row.title, MOST_NAME if terminal.bounded else terminal.room, terminal.glyph('…', '..'))}: ",
                "bold",
            ),
            neutralise(row.reason),
        )
        left = len(troubled) - index
        if most is not None and len(lines) + 1 >= most and left > 1:
            rest = f"{left} {'more' if lines else 'VMs'} pending or degraded: vmqos vm list"
            return lines + wrapped([Text(rest, style="bold yellow")], terminal)[:1]
        room = None if most is None else most - len(lines) - (left > 1)
        lines += _within(wrapped([told], terminal), room, terminal)
    return lines


def _within(lines: list[Text], most: int | None, terminal: Terminal) -> list[Text]:
    """The first ``most`` lines, with a mark where there are more."""
    if most is None or len(lines) <= most:
        return lines
    mark = terminal.glyph(" …", " ..")
    last = lines[most - 1].copy()
    while last.cell_len + len(mark) > terminal.width and " " in last.plain.strip():
        last = last[: last.plain.rstrip().rindex(" ")]
        last.rstrip()
    return [*lines[: most - 1], last.append(mark)]


def keys_line(terminal: Terminal, keys: Sequence[str] = _KEYS) -> str:
    """The keys that there is room to name."""
    line = ""
    for key in keys:
        longer = f"{line}   {key}" if line else key
        if len(longer) > terminal.width:
            break
        line = longer
    return line


def help_lines(terminal: Terminal) -> list[Text]:
    """What the keys do and what the columns mean."""
    return wrapped(map(Text, HELP), terminal)


def _mark(row: Row, terminal: Terminal) -> str:
    return terminal.glyph(*_MARKS.get(row.state, (" ", " ")))


def _titles(shown: Sequence[Column], order: Order, terminal: Terminal) -> Text:
    line = Text("  ", style="bold")
    sorted_by = next((column for column in shown if column.key == order.key), None)
    for index, column in enumerate(shown):
        mark = terminal.glyph("▲" if order.reverse else "▼", "^" if order.reverse else "v")
        title = column.title + (mark if column is sorted_by else "")
        title = title[: max(column.width, len(column.title))]
        line.append("  " if index else "")
        line.append(
            title.ljust(column.width) if column.left else title.rjust(column.width),
            "reverse" if column is sorted_by else "",
        )
    return line


def _line(row: Row, shown: Sequence[Column], terminal: Terminal, *, is_chosen: bool = False) -> Text:
    line = Text()
    line.append(f"{_mark(row, terminal)}{terminal.glyph(' ', '>') if is_chosen else ' '}", STYLES.get(row.state, ""))
    for index, column in enumerate(shown):
        cell = column.draw(row)
        blanks = " " * max(0, column.width - cell.cell_len)
        line.append("  " if index else "")
        if column.left:
            line.append_text(cell).append(blanks)
        else:
            line.append(blanks).append_text(cell)
    line.rstrip()
    if is_chosen:
        line.append(" " * max(0, terminal.width - line.cell_len) if terminal.fancy else "")
        line.stylize("reverse")
    return line


def _cut(line: Text, width: int) -> Text:
    line = line.copy()
    line.truncate(width, overflow="crop")
    return line
