# SPDX-License-Identifier: Apache-2.0
"""A list that is made anew all the time; ``vmqos vm list --watch`` in a terminal: one that stays in its place."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol, TextIO, TypeVar

from rich.text import Text

from vmqos.cli.live.looker import Looker
from vmqos.cli.live.screen import Screen
from vmqos.cli.show import utc
from vmqos.cli.show.freshness import Freshness
from vmqos.cli.show.safe_text import neutralise
from vmqos.cli.show.terminal import Terminal, wrapped
from vmqos.local_api import contract
from vmqos.local_api.exceptions import LocalApiError

DELAY = 2.0
LEAST_DELAY = 0.1
LONGEST_DELAY = 86400.0
"""Seconds between two looks."""

_KEYS = "q quit   space look at once   arrows scroll"


class Seen(Protocol):
    """What any look has."""

    @property
    def taken_at(self) -> float:
        """Seconds since 1970."""

    @property
    def freshness(self) -> Freshness:
        """How old what the agent told is."""


AnyLook = TypeVar("AnyLook", bound=Seen)


@dataclass(frozen=True, slots=True)
class Look:
    """What the agent told.

    :ivar taken_at: seconds since 1970.
    :ivar vms: all of them, the most urgent first.
    """

    taken_at: float
    vms: Sequence[contract.Vm]
    freshness: Freshness


class Drawing(io.StringIO):
    """Takes what is written for a terminal.

    :param terminal: its abilities.
    """

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """What the terminal can show."""
        return "utf-8" if self._terminal.fancy else "ascii"

    def isatty(self) -> bool:
        """What is written is shown on a screen, and has to fit it."""
        return True


def repeat(once: Callable[[int], object], delay: float, tell: Callable[[LocalApiError], None]) -> NoReturn:
    """Print list after list until the operator or the reader of the pipe ends it.

    :param once: asks the agent and prints; it is told how many lists there were.
    :param delay: seconds between two of them.
    :param tell: is told why a list is missing.
    :raises vmqos.local_api.exceptions.LocalApiError: if the agent does not answer the first time.
    """
    due, number = time.monotonic(), 0
    while True:
        try:
            once(number)
        except LocalApiError as error:
            if not number:
                raise
            tell(error)
        number += 1
        due = max(due + delay, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def run(
    look: Callable[[], AnyLook],
    table: Callable[[AnyLook], str],
    output: TextIO,
    terminal: Terminal,
    view: View,
) -> AnyLook:
    """Show the list until the operator ends it; returns the last look.

    :param look: asks the agent.
    :param table: draws the list of a look for a terminal as wide as it is now.
    :raises vmqos.local_api.exceptions.LocalApiError: if the agent does not answer the first time.
    """
    newest = look()
    table(newest)
    with Screen(output, terminal).open() as screen, Looker(look, view.delay, screen.wake) as looker:
        while not view.over:
            newest = looker.newest or newest
            lines = [Text.from_ansi(line) for line in table(newest).splitlines()]
            screen.show(view.draw(newest, lines, looker.problem, screen.terminal, screen.lines))
            for key in screen.wait():
                if key == "space":
                    looker.hurry()
                else:
                    view.press(key)
    return newest


class View:
    """Which part of the list is seen.

    :param delay: seconds between two looks.
    :param command: what the heading says.
    :param has_titles: whether the list is a table, whose titles stay while the rows scroll.
    :ivar over: whether the operator has seen enough.
    """

    def __init__(self, delay: float, command: str = "vmqos vm list", has_titles: bool = True) -> None:
        self.over = False
        self.delay = delay
        self._command = command
        self._has_titles = has_titles
        self._first = 0
        self._page = 1

    def draw(self, look: Seen, table: list[Text], problem: str, terminal: Terminal, height: int) -> list[Text]:
        """The whole screen, line by line.

        :param table: the list, with its titles.
        :param problem: why there is no newer look; empty if there is no such reason.
        """
        above = wrapped(self._heading(look, problem, terminal), terminal)
        # The titles and the line below them stay; a plain table has a line above them, too.
        titles = min(len(table), 2 if terminal.fancy else 3) if self._has_titles else 0
        above, rows = [*above, *table[:titles]], table[titles:] or [Text("no VM", style="dim")]
        room = max(1, height - len(above) - 1)
        below = ""
        if len(rows) > room:
            room = max(1, room - 1)
            self._first = max(0, min(self._first, len(rows) - room))
            below = f"lines {self._first + 1} to {self._first + room} of {len(rows)}"
        else:
            self._first = 0
        self._page = room
        lines = [*above, *rows[self._first : self._first + room], *([Text(below, style="dim")] if below else [])]
        blank = [Text() for _ in range(height - 1 - len(lines))]
        keys = _KEYS if len(_KEYS) <= terminal.width else "q quit"
        shown = [*lines, *blank][: max(0, height - 1)]
        return [*shown, Text(keys, style="dim")]

    def press(self, key: str) -> None:
        """Do what a key asks for."""
        steps = {"up": -1, "down": 1, "page up": -self._page, "page down": self._page, "home": -(10**9), "end": 10**9}
        if key == "q":
            self.over = True
        self._first = max(0, self._first + steps.get(key, 0))

    def _heading(self, look: Seen, problem: str, terminal: Terminal) -> Iterator[Text]:
        dot = terminal.glyph(" · ", ", ")
        clock = utc.time_of_day(look.taken_at)
        host = f"{dot}{neutralise(look.freshness.hostname)}" if look.freshness.hostname else ""
        yield Text.assemble((self._command, "bold"), f"{host}{dot}{clock}, every {self.delay:g} s")
        if problem:
            yield Text(f"{neutralise(problem)}; what follows is of {clock}", style="bold red")
        elif look.freshness.warning:
            yield Text(neutralise(look.freshness.warning), style="bold red")
        for sentence in look.freshness.missing:
            yield Text(sentence, style="bold red")
