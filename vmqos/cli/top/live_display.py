# SPDX-License-Identifier: Apache-2.0
"""``vmqos top`` in a terminal: looks, keys and what they change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TextIO

from rich.text import Text

from vmqos.cli.terminal import Terminal
from vmqos.cli.top import data, text_view
from vmqos.cli.top.data import Frame, Order, Row
from vmqos.cli.live.screen import Screen

_SORT_KEYS = {
    "o": "occupancy",
    "t": "total",
    "l": "local",
    "r": "remote",
    "i": "ipc",
    "m": "misses",
    "w": "ways",
    "s": "state",
    "n": "name",
}


def run(
    look: Callable[[], Frame], output: TextIO, terminal: Terminal, delay: float, wanted: Sequence[str], order: Order
) -> None:
    """Show look after look on the same screen until the operator ends it.

    :param look: looks once.
    :param delay: seconds between two looks.
    :param wanted: what the VMs to show are called; all if empty.
    :raises vmqos.cli.exceptions.NoSuchVm: if one of them is not there at the beginning.
    """
    first = look()
    data.require(first.rows, wanted)
    with Screen(output, terminal).open() as screen, Looker(look, delay, screen.wake) as looker:
        view = View(first, wanted, order)
        while not view.over:
            screen.show(view.draw(looker.frame or first, looker.problem, screen.terminal, screen.lines))
            for key in screen.wait():
                if key == "space":
                    looker.hurry()
                else:
                    view.press(key)


class View:
    """What a user chose to see.

    :ivar over: whether that was enough.
    """

    def __init__(self, frame: Frame, wanted: Sequence[str], order: Order) -> None:
        self.over = False
        self._wanted = wanted
        self._order = order
        self._help = False
        self._first = 0
        self._page = 1
        self._rows: list[Row] = data.choose(frame.rows, wanted, order)

    def draw(self, frame: Frame, problem: str, terminal: Terminal, height: int) -> list[Text]:
        """The whole screen, line by line.

        :param problem: why there is nothing newer than the frame; empty if there is no such reason.
        """
        self._rows = data.choose(frame.rows, self._wanted, self._order)
        room = height - 1
        if self._help:
            lines = [Text("vmqos top", style="bold"), Text(), *text_view.help_lines(terminal)][:room]
        else:
            shown = text_view.draw(
                frame, self._rows, self._order, terminal, room=room, first=self._first, problem=problem
            )
            self._first, self._page, lines = shown.first, shown.count, shown.lines
        blank = [Text() for _ in range(room - len(lines))]
        return [*lines, *blank, Text(text_view.keys_line(terminal), style="dim")]

    def press(self, key: str) -> None:
        """Do what a key asks for."""
        if key == "q":
            self.over = True
        elif key in ("h", "?"):
            self._help = not self._help
        elif key in _SORT_KEYS:
            self._order = Order(_SORT_KEYS[key], self._order.reverse)
        elif key == "R":
            self._order = Order(self._order.key, not self._order.reverse)
        else:
            steps = {"up": -1, "down": 1, "page up": -self._page, "page down": self._page}
            ends = {"home": 0, "end": len(self._rows)}
            self._first = ends.get(key, self._first + steps.get(key, 0))
