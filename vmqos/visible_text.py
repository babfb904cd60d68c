# SPDX-License-Identifier: Apache-2.0
"""Text of strangers, made visible where it enters a log or a terminal.

A process chooses its name, a user the name of a mount point, a VM and a flavor, and QEMU its error messages. Any of
them could move the cursor, hide a line, retitle the window of the operator who reads it, or pass for a line of the log.
JSON and metrics keep such text as it is: their own grammar makes it harmless.
"""

from __future__ import annotations

import copy
import logging
import traceback


def neutralise(text: str) -> str:
    """The text with every character that is not plainly seen written as a backslash escape.

    These are Unicode's control and format characters (escape sequences, direction marks), lone surrogates, private and
    unassigned ones, and every blank but the ordinary one.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


class VisibleFormatter(logging.Formatter):
    """Has another formatter write each record on one line of visible characters.

    The lines of a traceback follow it, each of them indented, so that none can pass for a record.

    :param inner: the other formatter. What it adds of its own, such as colours, stays as it is.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner
        # By its name: oslo.log is slow to load, and a command has no use for it.
        self._repeats_errors = type(inner).__name__ == "ContextFormatter"

    def format(self, record: logging.LogRecord) -> str:
        """Write a record. It keeps its own text, for other handlers have it, too."""
        # Every formatter leaves the text there.
        record.message = message_of(record)
        lines = [record.message]
        if record.exc_info:
            pieces = traceback.format_exception(*record.exc_info)
            lines += [line for piece in pieces for line in piece.rstrip("\n").split("\n")]
        if record.stack_info:
            lines += record.stack_info.split("\n")
        visible = copy.copy(record)
        visible.msg, visible.args = "\n    ".join(map(neutralise, lines)), ()
        visible.exc_info = visible.exc_text = visible.stack_info = None
        if self._repeats_errors:
            # Behind a warning or an error oslo.log repeats the exception that is being handled, which our texts say
            # already (_get_error_summary in oslo_log/formatters.py). The name of the level is another field.
            visible.levelno = min(record.levelno, logging.INFO)
        return self._inner.format(visible)


def make_visible(logger: logging.Logger) -> None:
    """Have every handler that a logger has now write visible characters only; to do so again changes nothing."""
    for handler in logger.handlers:
        if not isinstance(handler.formatter, VisibleFormatter):
            handler.setFormatter(VisibleFormatter(handler.formatter or logging.Formatter()))


def message_of(record: logging.LogRecord) -> str:
    """The text of a record; where its arguments do not fit, that is told in it."""
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError) as error:
        return f"{record.msg} ({error})"
