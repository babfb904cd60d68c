# SPDX-License-Identifier: Apache-2.0
"""Drawing the report's plots as SVG, the same file from the same figures."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.worth.section import Bars, Curves, digest

COLOURS = ("#30638e", "#d1603d", "#7a9e7e", "#8c6bb1", "#b0883b")
LINES = ((3.5, "-"), (1.5, "-"), (1.5, "--"), (1.5, ":"))
"""Width and dashes of curves, so that one is seen on top of another."""
INCHES = (7.5, 3.2)
DENSE = 20
"""Bars up to which each has its value above it."""
WIDTH = 0.8
"""Of a group of bars; a gap is left to the next one."""


def draw(plot: Bars | Curves, path: Path) -> None:
    """Draw one."""
    with matplotlib.rc_context({"svg.hashsalt": "vmqos", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.add_subplot()
        if isinstance(plot, Bars):
            _bars(axes, plot)
        else:
            _curves(axes, plot)
        series = plot.values if isinstance(plot, Bars) else plot.samples
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.set_title(plot.title, loc="left", fontsize=9, fontweight="bold", pad=8 if len(series) == 1 else 24)
        figure.savefig(path, format="svg", metadata={"Date": None, "Description": digest(plot)})


def _bars(axes: Axes, plot: Bars) -> None:
    width = WIDTH / len(plot.values)
    digits = 0 if max(map(max, plot.values.values())) > 10 else 3
    few = len(plot.values) * len(plot.groups) <= DENSE
    for number, (series, values) in enumerate(plot.values.items()):
        places = [group - WIDTH / 2 + (number + 0.5) * width for group in range(len(plot.groups))]
        bars = axes.bar(places, values, width * 0.95, label=series, color=COLOURS[plot.colour + number])
        if few:
            axes.bar_label(bars, [f"{value:z.{digits}f}" for value in values], fontsize=7)
    if not few:
        axes.grid(axis="y", color="0.85", linewidth=0.6)
        axes.set_axisbelow(True)
    axes.set_xticks(range(len(plot.groups)), [group.replace(", ", ",\n") for group in plot.groups])
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel(plot.axis)
    axes.margins(y=0.1)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_ylabel(plot.unit)
    if len(plot.values) > 1:
        _legend(axes)


def _curves(axes: Axes, plot: Curves) -> None:
    for number, (series, samples) in enumerate(plot.samples.items()):
        ordered = sorted(samples)
        shares = [100 * (index + 1) / len(ordered) for index in range(len(ordered))]
        width, dashes = LINES[number]
        axes.step(ordered, shares, where="post", label=series, color=COLOURS[number], linewidth=width, linestyle=dashes)
    axes.set_xlabel(plot.unit)
    axes.set_ylabel("share of the events, per cent")
    axes.set_xlim(left=0)
    _legend(axes)


def _legend(axes: Axes) -> None:
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(COLOURS), borderaxespad=0.2)
