# SPDX-License-Identifier: Apache-2.0
"""Fields of a line of the log in systemd's journal, by which ``journalctl FIELD=VALUE`` finds it.

Where a handler writes to the journal, a record with fields goes there by the journal's own protocol, in the place of
the handler's plain line. Elsewhere it is a line like others.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

from oslo_log.handlers import OSJournalHandler

from vmqos.visible_text import neutralise

SOCKET = "/run/systemd/journal/socket"

LONGEST_VALUE = 4096
"""Characters of a field, of which a message is one: far less than a datagram holds."""

_ATTRIBUTE = "journal_fields"
_SENT = "journal_has_it"

_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.DEBUG, 7))


def fields(**values: str) -> Mapping[str, object]:
    """The fields of a record, as ``extra`` of a call to a logger.

    :param values: by the field's name, in capitals; empty ones are left out.
    """
    return {_ATTRIBUTE: {name: value for name, value in values.items() if value}}


def attach(logger: logging.Logger, program: str, path: str = SOCKET) -> None:
    """Have the handlers that the logger has now, and that write to the journal, send the fields of records.

    :param program: under which name the journal knows the process.
    :param path: the journal's socket.
    """
    for handler in logger.handlers:
        if isinstance(handler, OSJournalHandler) or _writes_to_the_journal(handler):
            handler.addFilter(_Sender(handler, program, path))


def _writes_to_the_journal(handler: logging.Handler) -> bool:
    """Whether it writes to the stream that systemd connected to the journal (``$JOURNAL_STREAM``, systemd.exec(5))."""
    if not isinstance(handler, logging.StreamHandler):
        return False
    try:
        status = os.fstat(handler.stream.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class _Sender(logging.Filter):
    """Sends records with fields, and keeps the handler from writing those that were sent."""

    def __init__(self, handler: logging.Handler, program: str, path: str) -> None:
        super().__init__()
        self._handler = handler
        self._program = program
        self._path = path

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the handler is to write the record itself: the journal does not have it."""
        found = getattr(record, _ATTRIBUTE, None)
        if found is None:
            return True
        if not getattr(record, _SENT, False):
            setattr(record, _SENT, self._send(record, found))
        return not getattr(record, _SENT)

    def _send(self, record: logging.LogRecord, found: Mapping[str, str]) -> bool:
        """Send a record without waiting for the journal; whether that went well."""
        values = {
            "MESSAGE": self._handler.format(record),
            "PRIORITY": str(next((priority for level, priority in _PRIORITIES if record.levelno >= level), 7)),
            "SYSLOG_IDENTIFIER": self._program,
            **found,
        }
        # One line a field: a value with a line break would have to be written in another way.
        lines = "".join(f"{name}={neutralise(value)[:LONGEST_VALUE]}\n" for name, value in values.items())
        try:
            with socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            ) as sender:
                sender.sendto(lines.encode("utf-8", "backslashreplace"), self._path)
        except OSError:
            return False
        return True
