# SPDX-License-Identifier: Apache-2.0
"""Telling once that the log can't be written, in the place of Python's long text for each line."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable

from vmqos.visible_text import neutralise

QUIET = 60.0
"""Seconds until the same is told again at the earliest: a disk that is nearly full takes one line and not the next."""


class TroubledHandler:
    """A handler that writes, and whose trouble with its file is told on standard error.

    One line tells the reason, and one that lines are written again. Any other error is one of the program's own, and
    the handler tells it as Python does.

    :param handler: the handler.
    :param clock: monotonic seconds.
    """

    def __init__(self, handler: logging.Handler, clock: Callable[[], float] = time.monotonic) -> None:
        self.handler = handler
        self._clock = clock
        self._of_python = handler.handleError
        self._failed = False
        self._reason = ""
        self._is_told = False
        """Whether the trouble that lasts was told."""
        self._told = ("", 0.0)
        """The reason that was told last, and when."""
        handler.handleError = self._on_error  # type: ignore[method-assign]

    def write(self, record: logging.LogRecord) -> None:
        """Have the handler write a record, if that is of its level."""
        if record.levelno < self.handler.level:
            return
        self._failed = False
        try:
            is_written = bool(self.handler.handle(record))
        except Exception:  # a filter's, or that of a file that can't be opened again
            self.handler.handleError(record)
            return
        if self._reason and is_written and not self._failed:
            if self._is_told:
                _say(f"the log is written to {self._where} again")
            self._reason, self._is_told = "", False

    def _on_error(self, record: logging.LogRecord) -> None:
        self._failed = True
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            self._of_python(record)
            return
        reason = error.strerror or str(error)
        if reason == self._reason:
            return
        self._reason = reason
        told, at = self._told
        if told == reason and self._clock() < at + QUIET:
            return
        self._told, self._is_told = (reason, self._clock()), True
        _say(f"the log can't be written to {self._where}: {reason}; lines are lost until it can")

    @property
    def _where(self) -> str:
        stream = getattr(self.handler, "stream", None)
        where = getattr(self.handler, "baseFilename", None) or getattr(stream, "name", None)
        return neutralise(str(where or type(self.handler).__name__))


def _say(text: str) -> None:
    # Standard error may be closed, or what can't be written.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(text, file=sys.stderr, flush=True)
