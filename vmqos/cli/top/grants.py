# SPDX-License-Identifier: Apache-2.0
"""What a VM was granted, as ``vmqos top`` shows it: its ways, its L2 ways and its limit of memory bandwidth. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from vmqos.cli.show import units
from vmqos.cli.show.terminal import Terminal
from vmqos.cli.top.data import Row


def ways(row: Row) -> str:
    """How many L3 ways it has, and how many it asks for where these are others."""
    has = units.by_cache({str(cache): _parts(row, cache) or str(count) for cache, count in row.ways.items()})
    return _of_requested(has if row.ways else "", row.ways, row.ways_requested)


def _parts(row: Row, cache: int) -> str:
    """``2c+4d`` for two ways for code and four for data; empty where both fill the same ones."""
    if cache not in row.code_ways:
        return ""
    return f"{row.code_ways[cache]}c+{row.data_ways[cache]}d"


def l2_ways(row: Row) -> str:
    """A VM may have cores by the dozen: where its L2s differ, it is the fewest that count."""
    return _of_requested(str(min(row.l2_ways.values())) if row.l2_ways else "", row.l2_ways, row.l2_ways_requested)


def limit(row: Row) -> str:
    """The memory bandwidth that it may have; ``none`` where it asks for a limit in vain, ``-`` where it does not."""
    found = units.bandwidth_by_cache(row.bandwidth, row.bandwidth_unit)
    return "none" if found == "-" and row.is_limited else found


def bar(row: Row, width: int, terminal: Terminal) -> Text:
    """Its ways on the cache where it has most, those for code apart."""
    cache = max(row.ways, key=lambda cache: row.ways[cache], default=None)
    has = 0 if cache is None else min(row.ways[cache], width)
    # What both fill is drawn as data.
    code = 0 if cache is None or cache not in row.code_ways else max(0, has - row.data_ways[cache])
    style = "color(75)" if row.policy != "shared" else "color(37)"
    drawn = Text(terminal.glyph("█", "#") * (has - code), style=style)
    drawn.append(terminal.glyph("▒", "c") * code, style)
    return drawn.append(terminal.glyph("·", ".") * (width - has), "dim")


def _of_requested(has: str, counts: Mapping[int, int], requested: int | None) -> str:
    if requested is None:
        return has or "-"
    return has if set(counts.values()) == {requested} else f"{has or 0}/{requested}"
