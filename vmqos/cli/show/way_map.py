# SPDX-License-Identifier: Apache-2.0
"""The way map: which group may fill which ways of a cache, as a picture. Pure: values in, drawn lines out.

Each way is a column, the highest on the left as in the masks that the kernel prints; each group is a line. Ways that
several groups may fill are seen at once, because their cells stand one below the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from vmqos.cli.show import units
from vmqos.cli.show.map_rows import CacheMap, Kind, Row
from vmqos.cli.show.safe_text import pad, squeeze
from vmqos.cli.show.terminal import UNBOUNDED, Terminal, wrapped

_COLOURS = (75, 215, 114, 176, 80, 222, 210, 147, 149, 180, 117, 183)
"""The VMs' colours in the 256-colour palette: light ones, that black letters can be read on, as on the page."""

_STYLES = {
    Kind.CLASS: "bold color(255) on color(30)",
    Kind.LOCKED: "bold color(255) on color(90)",
    Kind.FOREIGN: "bold color(255) on color(124)",
    Kind.DEFAULT: "color(250) on color(239)",
    Kind.IO: "bold color(220)",
    Kind.NOBODY: "dim",
    Kind.PLANNED: "bold color(16) on color(46)",
}
_LEGEND = (
    (Kind.VM, "A", "a letter: one VM's own"),
    (Kind.CLASS, "1", "a digit: a class, VMs' cap in the shared pool"),
    (Kind.DEFAULT, "=", "default group"),
    (Kind.LOCKED, "x", "pseudo-locked memory"),
    (Kind.FOREIGN, "#", "not vmqos'"),
    (Kind.PLANNED, "+", "planned"),
    (Kind.NOBODY, "-", "no group's"),
    (Kind.IO, "~", "I/O devices fill it too"),
)
_FIGURES = ("ways", "bandwidth", "size", "mask")
"""What stands behind the ways; the limits of memory bandwidth only where there is one."""
_CHOICES = ((2, 4), (2, 3), (2, 2), (1, 2), (0, 2), (2, 1), (1, 1), (0, 1))
"""How many of the last two figures there are, and how wide a way is; the best first."""
_CHOICES_OF_FOUR = (*_CHOICES[:2], (1, 3), *_CHOICES[2:])
"""The choices where there are limits of memory bandwidth: rather no mask than narrow ways."""
_WIDEST_LABEL = 32
_LEAST_LABEL = 12


@dataclass(frozen=True, slots=True)
class _Shape:
    """How the maps are laid out: columns for the label, for each way, and for the figures that there is room for.

    :ivar figures: the width of each figure, by its title.
    """

    label: int
    way: int
    figures: Mapping[str, int]


def draw(maps: Sequence[CacheMap], terminal: Terminal) -> Text:
    """The pictures of the caches, one below the other, and the legend of the symbols they use."""
    lines: list[Text] = []
    shape = _shape(maps, terminal.room)
    for cache in maps:
        lines += [*_cache(cache, shape, terminal), Text()]
    lines += _legend([row.kind for cache in maps for row in cache.rows], terminal)
    for line in lines:
        line.rstrip()
    return Text("\n").join(lines)


def _cache(cache: CacheMap, shape: _Shape, terminal: Terminal) -> Iterator[Text]:
    yield _title(cache, terminal)
    yield from _axis(cache, shape, terminal)
    for row in cache.rows:
        yield _row(cache, row, shape, terminal)
    yield from _notes(cache, terminal)


def _shape(maps: Sequence[CacheMap], width: int) -> _Shape:
    """The widest cells that leave the labels readable, the same for all; where room is scarce figures are left out."""
    rows = [(cache, row) for cache in maps for row in cache.rows]
    ways = max((cache.ways for cache in maps), default=0)
    longest = max((cell_len(row.label) for _, row in rows), default=0)
    wanted = max(_LEAST_LABEL, longest if width >= UNBOUNDED else min(longest, _WIDEST_LABEL))
    drawn = [dict(zip(_FIGURES, _figures(*pair), strict=True)) for pair in rows]
    limited = any(row.limit for _, row in rows)
    figures = {
        title: max(map(cell_len, [title, *(each[title] for each in drawn)]))
        for title in _FIGURES
        if limited or title != "bandwidth"
    }
    for further, way in _CHOICES_OF_FOUR if limited else _CHOICES:
        chosen = dict(list(figures.items())[: len(figures) - 2 + further])
        least = wanted if way == 4 else min(wanted, 14) if way == 3 else _LEAST_LABEL
        room = width - 6 - ways * way - sum(2 + column for column in chosen.values())
        if room >= least:
            return _Shape(min(room, wanted), way, chosen)
    return _Shape(_LEAST_LABEL, 1, {})


def _figures(cache: CacheMap, row: Row) -> tuple[str, str, str, str]:
    count = row.mask.bit_count()
    return str(count), row.limit, units.size(cache.way_bytes and cache.way_bytes * count), f"{row.mask:x}"


def _title(cache: CacheMap, terminal: Terminal) -> Text:
    times, dot = terminal.glyph("\N{MULTIPLICATION SIGN}", "x"), terminal.glyph(" · ", ", ")
    several = len(cache.ids) > 1
    name = f"{cache.resource} cache{'s' if several else ''} {units.number_list(cache.ids)}"
    ways = f"{cache.ways} ways"
    if cache.way_bytes:
        ways += f" {times} {units.size(cache.way_bytes)} = {units.size(cache.way_bytes * cache.ways)}"
    each = " each" if several else ""
    return Text.assemble((name, "bold"), dot, ways, each, dot, f"CPUs {cache.cpus or 'none'}")


def _axis(cache: CacheMap, shape: _Shape, terminal: Terminal) -> Iterator[Text]:
    """The ways' numbers: side by side where they fit, else upright, a digit below the other."""
    highest = cache.ways - 1
    upright = len(str(highest)) >= shape.way > 0 and highest > 9
    digits = len(str(highest)) if upright else 1
    for digit in range(digits):
        last = digit == digits - 1
        line = Text(" " * 5 + ("way" if last else "").rjust(shape.label) + " ", style="dim")
        for way in range(highest, -1, -1):
            number = str(way).rjust(digits)[digit] if upright else str(way)
            style = "color(220)" if cache.shareable >> way & 1 else ""
            line.append(_centred(number, shape.way), style)
        if last:
            for title, width in shape.figures.items():
                line.append("  " + title.rjust(width))
        yield line


def _row(cache: CacheMap, row: Row, shape: _Shape, terminal: Terminal) -> Text:
    style = _style(row)
    label = pad(squeeze(row.label, shape.label, terminal.glyph("…", "..")), shape.label)
    line = Text(" ")
    line.append(f" {row.symbol} ", style)
    line.append(f" {label} ", "dim" if row.kind in (Kind.IO, Kind.NOBODY) else "")
    own, empty = _centred(row.symbol, shape.way), _centred(terminal.glyph("·", "."), shape.way)
    for way in range(cache.ways - 1, -1, -1):
        line.append(*((own, style) if row.mask >> way & 1 else (empty, "color(238)")))
    figures = dict(zip(_FIGURES, _figures(cache, row), strict=True))
    for title, width in shape.figures.items():
        line.append("  " + figures[title].rjust(width), "dim")
    return line


def _notes(cache: CacheMap, terminal: Terminal) -> Iterator[Text]:
    if cache.free_ways is not None:
        run = "" if cache.largest_free_run == cache.free_ways else f", at most {cache.largest_free_run} side by side"
        noun = "way" if cache.free_ways == 1 else "ways"
        free = f"{cache.free_ways or 'no'} {noun} left to promise exclusively{run}"
        each = " in each" if len(cache.ids) > 1 else ""
        yield Text(f"     {free}{each}", style="bold green" if cache.free_ways else "bold yellow")
    for warning in cache.warnings:
        yield from wrapped([Text(f"  {terminal.glyph('▲', '!')} {warning}", style="bold red")], terminal, 5)
    for remark in cache.remarks:
        yield from wrapped([Text(f"     {remark}", style="dim")], terminal, 5)


def _legend(kinds: Sequence[Kind], terminal: Terminal) -> Iterator[Text]:
    line = Text()
    for kind, symbol, meaning in _LEGEND:
        if kind not in kinds:
            continue
        item = Text.assemble((f" {symbol} ", _STYLES.get(kind, _vm_style(0))), f" {meaning}   ")
        if line and cell_len(line.plain) + cell_len(item.plain.rstrip()) > terminal.room:
            yield line
            line = Text()
        line.append_text(item)
    if line:
        yield line


def _style(row: Row) -> str:
    return _vm_style(row.colour) if row.kind is Kind.VM else _STYLES[row.kind]


def _vm_style(colour: int) -> str:
    return f"bold color(16) on color({_COLOURS[colour % len(_COLOURS)]})"


def _centred(text: str, width: int) -> str:
    return text.rjust((width + len(text) + 1) // 2).ljust(width)
