# SPDX-License-Identifier: Apache-2.0
"""``vmqos top`` in a terminal: looks, keys and what they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.text import Text

from vmqos.cli.live.looker import Looker
from vmqos.cli.live.screen import Screen
from vmqos.cli.show.safe_text import neutralise
from vmqos.cli.show.terminal import Terminal
from vmqos.cli.top import data, detail_view, text_view
from vmqos.cli.top.data import Frame, Order, Row

_SORT_KEYS = {
    "o": "occupancy",
    "t": "total",
    "l": "local",
    "r": "remote",
    "i": "ipc",
    "m": "misses",
    "p": "watts",
    "c": "stalls",
    "w": "ways",
    "s": "state",
    "n": "name",
}

LONGEST_SEARCH = 255
"""Characters: no name is longer."""


def run(
    look: Callable[[str], Frame],
    output: TextIO,
    terminal: Terminal,
    delay: float,
    wanted: Sequence[str],
    order: Order,
) -> None:
    """Show look after look on the same screen until the operator ends it.

    :param look: looks once; at all of the VM with the UUID that it is given, if any.
    :param delay: seconds between two looks.
    :param wanted: what the VMs to show are called; all if empty.
    :raises vmqos.cli.exceptions.NoSuchVm: if one of them is not there at the beginning.
    """
    first = look("")
    data.require(first.rows, wanted)
    view = View(first, wanted, order)
    with Screen(output, terminal).open() as screen, Looker(lambda: look(view.opened), delay, screen.wake) as looker:
        while not view.over:
            screen.show(view.draw(looker.newest or first, looker.problem, screen.terminal, screen.lines))
            for key in screen.wait():
                opened = view.opened
                view.press(key)
                if view.opened != opened or (key == "space" and not view.is_searching):
                    looker.hurry()


class View:
    """What an operator chose to see.

    :ivar over: whether that was enough.
    :ivar opened: the UUID of the VM that is shown in detail; empty while all are listed.
    :ivar is_searching: whether keys are letters of the text that is searched for.
    """

    def __init__(self, frame: Frame, wanted: Sequence[str], order: Order) -> None:
        self.over = False
        self.opened = ""
        self.is_searching = False
        self._wanted = wanted
        self._order = order
        self._help = False
        self._search = ""
        self._chosen = ""
        self._at = 0
        self._is_moved = False
        self._first = 0
        self._page = 1
        self._scrolled = 0
        self._rows: list[Row] = data.choose(frame.rows, wanted, order)

    def draw(self, frame: Frame, problem: str, terminal: Terminal, height: int) -> list[Text]:
        """The whole screen, line by line.

        :param problem: why there is nothing newer than the frame; empty if there is no such reason.
        """
        rows = data.choose(frame.rows, self._wanted, self._order)
        self._rows = data.search(rows, self._search)
        if not self.opened:
            self._follow()
        room = height - 1
        opened = next((row for row in frame.rows if row.uuid == self.opened), None)
        keys = text_view.keys_line(terminal)
        if self._help:
            lines = [Text("vmqos top", style="bold"), Text(), *text_view.help_lines(terminal)][:room]
        elif self.opened:
            lines = self._detail(frame, opened, problem, terminal, room)
            keys = text_view.keys_line(terminal, text_view.DETAIL_KEYS)
        else:
            shown = text_view.draw(
                frame,
                rows,
                self._order,
                terminal,
                room=room,
                first=self._first,
                problem=problem,
                chosen=self._chosen,
                search=self._search,
            )
            self._first, self._page, lines = shown.first, shown.count, shown.lines
            if self.is_searching or self._search:
                keys = self._search_line(len(rows), terminal)
        blank = [Text() for _ in range(room - len(lines))]
        return [*lines, *blank, Text(keys, style="" if self.is_searching else "dim")]

    def press(self, key: str) -> None:
        """Do what a key asks for."""
        if self.is_searching:
            self._type(key)
        elif key == "q":
            self.over = True
        elif key in ("h", "?"):
            self._help = not self._help
        elif self._help:
            self._help = key != "escape"
        elif self.opened:
            self._press_in_detail(key)
        elif key == "/":
            self.is_searching = True
        elif key == "escape":
            self._search = ""
        elif key == "enter":
            self.opened, self._scrolled = self._chosen, 0
        elif key in _SORT_KEYS:
            self._order = Order(_SORT_KEYS[key], self._order.reverse)
        elif key == "R":
            self._order = Order(self._order.key, not self._order.reverse)
        else:
            self._move(key)

    def _follow(self) -> None:
        """Stay at the VM that the operator moved to, or where it went, at the one in its place; else at the first."""
        uuids = [row.uuid for row in self._rows]
        if self._is_moved and self._chosen in uuids:
            self._at = uuids.index(self._chosen)
        elif not self._is_moved:
            self._at = 0
        self._at = max(0, min(self._at, len(uuids) - 1))
        self._chosen = uuids[self._at] if uuids else ""

    def _move(self, key: str) -> None:
        steps = {"up": -1, "down": 1, "page up": -self._page, "page down": self._page}
        ends = {"home": 0, "end": len(self._rows) - 1}
        self._at = max(0, min(ends.get(key, self._at + steps.get(key, 0)), len(self._rows) - 1))
        self._chosen = self._rows[self._at].uuid if self._rows else ""
        # Who is at the top watches the top, whichever VM is there.
        self._is_moved = self._at > 0

    def _type(self, key: str) -> None:
        """Change the text that is searched for; Enter keeps it, and Escape drops it."""
        if key in ("enter", "escape"):
            self.is_searching = False
            self._search = self._search if key == "enter" else ""
        elif key == "backspace":
            self._search = self._search[:-1]
        elif key == "clear":
            self._search = ""
        elif key in ("up", "down", "page up", "page down", "home", "end"):
            self._move(key)
        else:
            character = " " if key == "space" else key
            self._search = (self._search + character)[:LONGEST_SEARCH]

    def _search_line(self, count: int, terminal: Terminal) -> str:
        """The text that is searched for, as much of its end as there is room for."""
        found = f"{len(self._rows)} of {count} VMs"
        end = f"   {found}   {'Enter keeps it   Esc all VMs' if self.is_searching else '/ search   Esc all VMs'}"
        if cell_len(end) > terminal.width // 2 + 12:
            end = f"   {found}"
        text = f"/{neutralise(self._search)}{'_' if self.is_searching else ''}"
        while cell_len(text + end) > terminal.width and len(text) > 1:
            text = f"/{text[2:]}"
        return text + end

    def _detail(self, frame: Frame, row: Row | None, problem: str, terminal: Terminal, room: int) -> list[Text]:
        if row is None:
            return [text_view.title(frame, terminal), Text("This VM does not run any more.", style="bold yellow")][
                :room
            ]
        above, lines = detail_view.draw(frame, row, terminal, problem)
        left = max(1, room - len(above))
        below: list[Text] = []
        if len(lines) > left:
            left = max(1, left - 1)
            self._scrolled = max(0, min(self._scrolled, len(lines) - left))
            below = [Text(f"lines {self._scrolled + 1} to {self._scrolled + left} of {len(lines)}", style="dim")]
        else:
            self._scrolled = 0
        self._page = left
        return [*above, *lines[self._scrolled : self._scrolled + left], *below][:room]

    def _press_in_detail(self, key: str) -> None:
        steps = {"up": -1, "down": 1, "page up": -self._page, "page down": self._page, "home": -(10**9), "end": 10**9}
        if key in ("escape", "backspace"):
            self.opened = ""
        self._scrolled = max(0, self._scrolled + steps.get(key, 0))
