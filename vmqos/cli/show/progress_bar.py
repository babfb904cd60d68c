# SPDX-License-Identifier: Apache-2.0
"""How far a command is, on standard error: by a bar that is gone at the end, where that is a terminal."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    import rich.progress


def for_terminals(stream: TextIO, *columns: rich.progress.ProgressColumn) -> rich.progress.Progress:
    """A bar on a terminal, and nothing elsewhere.

    :param columns: what stands beside the bar; rich's own if there are none, which guess how long it still takes.
    """
    # Imported here: most calls of the command show no progress.
    from rich.progress import Progress

    hidden = not stream.isatty()
    # A console that is quiet too: some versions of rich end a bar that was never shown with an empty line.
    return Progress(*columns, console=Console(file=stream, quiet=hidden), transient=True, disable=hidden)


class PhaseBar:
    """A bar for what has several phases. Where there is no terminal, each phase is a line.

    :param total: what is done at the end, in the unit of :meth:`show`.
    """

    def __init__(self, stream: TextIO, total: float) -> None:
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn

        self._stream = stream
        self._phase = ""
        # rich's guess takes phases for alike: where one was over at once, it told of hours.
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._bar = for_terminals(stream, *columns)
        self._task = self._bar.add_task("", total=total, left="")

    def __enter__(self) -> Self:
        self._bar.start()
        # rich has put a stream of its own in the place of standard error: what is logged there goes above the bar.
        _log_to(self._stream, sys.stderr)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _log_to(sys.stderr, self._stream)
        self._bar.stop()

    def show(self, phase: str, done: float, seconds_left: float | None = None) -> None:
        """Show the phase, for people, and how much is done.

        :param seconds_left: until the end, where that is known.
        """
        if phase != self._phase and self._bar.disable:
            self._stream.write(f"{phase} ...\n")
            self._stream.flush()
        self._phase = phase
        left = "" if seconds_left is None else f"{seconds_left:.0f} s left"
        self._bar.update(self._task, completed=done, description=escape(phase), left=left)


def _log_to(before: TextIO, now: TextIO) -> None:
    """Have the log written to another stream, as far as it was written to this one."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is before:
            handler.setStream(now)
