# SPDX-License-Identifier: Apache-2.0
"""How ``vmqos top`` shows one VM: its live figures, and what ``vmqos vm show`` knows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from vmqos.cli.show import fullness, no_number, units, vm_view
from vmqos.cli.show.safe_text import neutralise, pad, squeeze
from vmqos.cli.show.tables import Cell
from vmqos.cli.show.terminal import Terminal, wrapped
from vmqos.cli.top import columns, grants, text_view
from vmqos.cli.top.data import Frame, Row
from vmqos.local_api import contract
from vmqos.telemetry import Missing, Reading

_TITLES = 22
"""Columns of the titles, so that values stay where they are when more becomes known."""

_LEAST_VALUE = 24
"""Columns of a value below which it stands under its title instead of beside it."""


def draw(frame: Frame, row: Row, terminal: Terminal, problem: str = "") -> tuple[list[Text], list[Text]]:
    """The lines that stay on top, and those below them, of which a screen may have room for some.

    :param problem: why there is no newer look; empty if there is no such reason.
    """
    name = squeeze(row.title, max(1, terminal.width - 20), terminal.glyph("…", ".."))
    state = Text(f", {row.state}" if row.state else "", style=text_view.STYLES.get(row.state, ""))
    above = [text_view.title(frame, terminal), *text_view.urgent(frame, problem), Text(name, style="bold") + state]
    if row.reason:
        above.append(Text(neutralise(row.reason), style=text_view.STYLES.get(row.state, "")))
    lines = [*_table(_figures(frame, row, terminal), terminal)]
    if frame.detail is not None and frame.detail["uuid"] == row.uuid:
        lines += [Text(), *_table(_known(frame.detail), terminal), Text(), *_threads(frame.detail, terminal)]
    else:
        why = frame.detail_problem or "The agent is being asked."
        lines += [Text(), *wrapped([Text(neutralise(why), style="dim")], terminal)]
    return wrapped(above, terminal), lines


def _figures(frame: Frame, row: Row, terminal: Terminal) -> Mapping[str, Any]:
    """What is counted of it, now."""
    figures: dict[str, Any] = {}
    part = f", an estimate from {row.share:.0%} of its time" if row.share is not None and row.is_estimate else ""
    for title, reading, text in (
        ("Memory bandwidth", row.total, _speed),
        ("  to its own socket", row.local, _speed),
        ("  to other sockets", row.remote, _speed),
        ("Instructions per cycle", row.ipc, lambda value: f"{value:.2f}{part}"),
        ("LLC misses", row.misses, lambda value: f"{columns.short_count(value)} a second{part}"),
        ("Power of the cores", row.watts, "{:.1f} W".format),
        ("Stalled on memory", row.stalls, "{:.0%} of its cycles".format),
    ):
        if reading.missing is not Missing.NO_COUNTER:
            figures[title] = _told(reading, text) if text is _speed else columns.number(reading, text).plain
    if row.measured_age is not None and (last := row.measured.get("total")) is not None:
        figures["Bandwidth before"] = f"{_speed(last)}, measured {units.duration(row.measured_age)} ago"
    held = _told(row.occupancy, units.size)
    if row.fills:
        held = f"{held} of {units.size(row.allocated)}\n{fullness.lines(row.fills, terminal)}"
    wide = max(frame.cache_ways.values(), default=0)
    ways = f"{grants.ways(row)}  {grants.bar(row, wide, terminal).plain}" if row.ways else grants.ways(row)
    return {"Cache held": held, "Ways": ways, **figures}


def _known(vm: contract.DetailedVm) -> Mapping[str, Any]:
    """What ``vmqos vm show`` tells of it, but for what stands on top."""
    # Beside the bandwidth that is measured, the one that is allowed needs a name of its own.
    names = {"Memory bandwidth": "Bandwidth limit"}
    told = vm_view.fields(vm).items()
    return {names.get(title, title): value for title, value in told if title not in ("State", "Reason")}


def _speed(value: float) -> str:
    return f"{units.size(value)}/s"


def _told(reading: Reading, text: Callable[[float], str]) -> str:
    """What resctrl counts, or why it does not."""
    return no_number.sentence(reading.missing) if reading.missing is not None else columns.number(reading, text).plain


def _table(fields: Mapping[str, Any], terminal: Terminal) -> Iterator[Text]:
    """A line for each field, its value beside the title and wrapped between words.

    A value stands under its title where the screen is too narrow for the two.
    """
    wide = max(_TITLES, *map(len, fields)) + 2
    for title, value in fields.items():
        text, style = (value.text, value.style) if isinstance(value, Cell) else (str(value), "")
        # Masks of many caches are one word to a screen, and too long for it.
        told = [Text(neutralise(line).replace(";", "; "), style=style) for line in text.split("\n")]
        longest = max(cell_len(word) for line in told for word in line.plain.split() or [""])
        is_beside = terminal.room - wide >= max(_LEAST_VALUE, longest)
        indent = wide if is_beside else 2
        if not is_beside:
            yield Text(title.strip(), style="dim")
        narrow = Terminal(terminal.fancy, max(1, terminal.width - indent), terminal.bounded)
        for number, line in enumerate(wrapped(told, narrow, indent=0)):
            beside = pad(title if number == 0 and is_beside else "", indent)
            yield Text.assemble((beside, "dim"), line)


def _threads(vm: contract.DetailedVm, terminal: Terminal) -> Iterator[Text]:
    """A line for each thread; the group where it is elsewhere than the VM's promise asks for."""
    yield Text("TID       In place  Thread", style="bold")
    for task in vm["task_list"]:
        tid, _, thread, group, in_place = vm_view.task_row(task)
        elsewhere = "" if task["in_place"] else f", in {group.short}"
        line = Text.assemble(f"{tid:<8}  ", (pad(in_place.text, 8), in_place.style), f"  {thread}{elsewhere}")
        yield from wrapped([line], terminal, indent=20 if terminal.room >= 60 else 2)
