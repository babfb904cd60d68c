# SPDX-License-Identifier: Apache-2.0
"""A log that keeps no thread of the daemon waiting: a thread of its own writes the lines.

A write to a journal, a pipe or a terminal that takes nothing any more does not end. The thread that logged a line would
wait for it, and each other one at its next line: the promises of all VMs with the agent, and the answers, and what
OpenStack is told, with the gateway.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from logging.handlers import QueueHandler
from queue import SimpleQueue

from vmqos.daemon.log_trouble import TroubledHandler
from vmqos.visible_text import message_of

LOG = logging.getLogger(__name__)

MOST = 4096
"""Lines that wait to be written, at most: some megabytes, and what the start of some hundred VMs says."""

BREATH = 0.02
"""Seconds for which a line waits for others. A thread that wants to write each one at once holds up the one that logged
it, for one of them runs at a time: the start of a VM would take longer, at each call of the kernel."""

PATIENCE = 1.0
"""Seconds that the end of the daemon waits for the lines that are not written yet."""


class LogQueue:
    """Stands between loggers and the handlers that write; the methods may be called from one thread.

    What comes while :data:`MOST` lines wait is lost, and the next line after it says how much that was.

    :param most: lines that wait, at most.
    """

    def __init__(self, most: int = MOST) -> None:
        self._lines: SimpleQueue[logging.LogRecord | None] = SimpleQueue()
        self._entrance = _Entrance(self._lines, most)
        self._writers: tuple[TroubledHandler, ...] = ()
        self._logger: logging.Logger | None = None
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def attach(self, logger: logging.Logger) -> None:
        """Have the handlers that a logger has now be called by the thread; those of an earlier call are forgotten."""
        handlers = [handler for handler in logger.handlers if handler is not self._entrance]
        writers = tuple(map(TroubledHandler, handlers))
        if not writers:
            return
        self._logger, self._writers = logger, writers
        logger.addHandler(self._entrance)
        for handler in handlers:
            logger.removeHandler(handler)

    @property
    def is_stuck(self) -> bool:
        """Whether a line was still being written, or waited, when :meth:`close` had no more patience."""
        return self._thread.is_alive()

    def close(self, patience: float = PATIENCE) -> None:
        """Write what waits, and have the logger write by itself again, unless that takes longer than this.

        :param patience: seconds.
        """
        self._lines.put(None)
        self._thread.join(patience)
        if self._logger is not None and not self.is_stuck:
            for writer in self._writers:
                self._logger.addHandler(writer.handler)
            self._logger.removeHandler(self._entrance)

    def leave(self, status: int, said: str = "") -> int:
        """The last thing that a daemon does, after :meth:`close`.

        :param said: for the standard error stream. Nobody can be told while what takes the log takes nothing.
        :returns: the status. Where a line can't be written, the program ends with it at once: the interpreter would
            wait for the line, until systemd kills it.
        """
        if self.is_stuck:
            os._exit(status)
        if said:
            print(said, file=sys.stderr)
        return status

    def _run(self) -> None:
        while (record := self._lines.get()) is not None:
            time.sleep(BREATH)
            self._write(record)
            for _ in range(self._lines.qsize()):
                if (record := self._lines.get()) is None:
                    return
                self._write(record)

    def _write(self, record: logging.LogRecord) -> None:
        for writer in self._writers:
            writer.write(record)


class _Entrance(QueueHandler):
    """Puts each record into the queue, if there is room."""

    def __init__(self, lines: SimpleQueue[logging.LogRecord | None], most: int) -> None:
        super().__init__(lines)
        self._lines = lines
        self._most = most
        self._lost = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Have the record say what it says now: what it names may be another by the time it is written."""
        record.msg, record.args = message_of(record), ()
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """The caller, :meth:`logging.Handler.handle`, holds the handler's own lock."""
        if self._lines.qsize() >= self._most:
            self._lost += 1
            return
        if self._lost:
            text = f"{self._lost} lines of the log were lost here: what takes them took none for a while"
            self._lines.put(LOG.makeRecord(LOG.name, logging.WARNING, __file__, 0, text, (), None))
            self._lost = 0
        self._lines.put(record)
