# SPDX-License-Identifier: Apache-2.0
"""What processes say on their command lines, asked where others wait for the answer.

A process can make a read of its command line last as long as it likes (:mod:`vmqos.agent.observe.looks`). So each is
read by a thread of its own, and the caller, which holds the lock on resctrl, waits for a moment.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

from vmqos.hypervisor import processes
from vmqos.hypervisor.model import Process

PATIENCE = 0.02
"""Seconds that all questions between two calls of :meth:`CommandLines.begin` wait together. A read takes some ten
microseconds, unless the process has made its command line as long as it may be."""

MOST_UNDER_WAY = 8
"""Reads that are under way at most, each with its thread."""


class CommandLines:
    """Asks processes, and knows which of them have not answered yet; to be used by one thread."""

    def __init__(self) -> None:
        self._late: dict[tuple[Process, tuple[bytes, ...]], Future[bool]] = {}
        self._until = 0.0

    def begin(self) -> None:
        """Have :data:`PATIENCE` again."""
        self._until = time.monotonic() + PATIENCE

    def say(self, process: Process, *arguments: bytes) -> bool | None:
        """Whether these arguments stand side by side in a process's command line (:func:`processes.says`).

        :returns: ``None`` where that is not known now. To ask again costs no time while an earlier question is open.
        :raises vmqos.hypervisor.exceptions.HypervisorError: if the command line can't be read.
        """
        question = process, arguments
        # A late answer may be about an earlier program of the process: it is asked anew then.
        self._late = {asked: answer for asked, answer in self._late.items() if not answer.done()}
        if question in self._late or len(self._late) >= MOST_UNDER_WAY:
            return None
        answer = _read(process, arguments)
        if answer is None:
            return None
        try:
            return answer.result(max(0.0, self._until - time.monotonic()))
        except TimeoutError:
            self._late[question] = answer
            return None


def _read(process: Process, arguments: tuple[bytes, ...]) -> Future[bool] | None:
    """Begin to read a command line; ``None`` where the agent has no thread left for it."""
    answer: Future[bool] = Future()

    def read() -> None:
        try:
            answer.set_result(processes.says(process.pid, arguments))
        except Exception as error:
            answer.set_exception(error)

    try:
        threading.Thread(target=read, name="command-line", daemon=True).start()
    except RuntimeError:
        return None
    return answer
