# SPDX-License-Identifier: Apache-2.0
"""What the place that output goes to can show."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, RenderableType
from rich.text import Text

DEFAULT_WIDTH = 80
UNBOUNDED = 100_000
"""Columns of a line in a pipe or file: more than anything that is printed has."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """An output's abilities.

    :ivar fancy: colours and line-drawing characters; without them plain ASCII and no escape codes.
    :ivar width: the screen's columns.
    :ivar bounded: whether a longer line would be wrapped by a screen; ``False`` for a pipe or file.
    """

    fancy: bool = False
    width: int = DEFAULT_WIDTH
    bounded: bool = True

    @property
    def room(self) -> int:
        """Columns that a line may have. A pipe has no width: nothing is cut or left out for it."""
        return self.width if self.bounded else UNBOUNDED

    def glyph(self, fancy: str, plain: str) -> str:
        """The character to use here of the two."""
        return fancy if self.fancy else plain


def of_stream(stream: TextIO, environment: Mapping[str, str], no_color: bool = False) -> Terminal:
    """Look at an output stream.

    ``NO_COLOR`` (https://no-color.org) makes it plain, ``FORCE_COLOR`` makes a pipe as colourful as a terminal.

    :param no_color: ``--no-color``, as if ``NO_COLOR`` were set.
    """
    screen = stream.isatty()
    unicode = (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"
    wanted = bool(environment.get("FORCE_COLOR")) or (screen and environment.get("TERM") != "dumb")
    forbidden = no_color or bool(environment.get("NO_COLOR"))
    width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    return Terminal(fancy=wanted and unicode and not forbidden, width=width, bounded=screen)


def wrapped(lines: Iterable[Text], terminal: Terminal, indent: int = 2) -> list[Text]:
    """The lines, those that are too long for the terminal broken between words.

    :param indent: blanks before what goes on on another line.
    """
    if not terminal.bounded:
        return list(lines)
    console = Console(width=terminal.width, color_system=None)
    found: list[Text] = []
    for line in lines:
        width = terminal.width if line.cell_len <= terminal.width else max(1, terminal.width - indent)
        first, *rest = line.wrap(console, width) or [line]
        first.rstrip()
        found.append(first)
        for part in rest:
            part.rstrip()
            found.append(Text(" " * indent).append_text(part))
    return found


def show(content: RenderableType, stream: TextIO, terminal: Terminal, width: int | None = None) -> None:
    """Write something drawn with rich.

    :param width: columns to draw it in, where they are not :attr:`Terminal.room`.
    """
    console = _Console(
        file=stream,
        width=width or terminal.room,
        force_terminal=terminal.fancy,
        color_system="auto" if terminal.fancy else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(content, crop=False)


class _Console(Console):
    """Leaves it to the application that a pipe was closed, as where something else is written to it."""

    def on_broken_pipe(self) -> None:
        """Say so; rich itself would end the process, with the status 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
