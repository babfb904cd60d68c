# SPDX-License-Identifier: Apache-2.0
"""Killing the agent at a place of its code, in the same process: what SIGKILL leaves undone is left undone.

:class:`Killed` is no :class:`Exception`, so no handler of the agent's stops it. While it ends the agent's calls, their
``finally`` blocks run, as they would not after SIGKILL; so :class:`tests.campaign.trouble.machine.AgentsResctrl` lets a
dead agent change nothing any more.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import vmqos

_CODE = f"{Path(vmqos.__file__).parent}/"
_PLACES = tuple(
    f"{_CODE}{part}/" for part in ("agent", "allocation", "daemon", "extra_specs", "host", "hypervisor", "resctrl")
)
"""The parts of the code that a pass consists of."""
_FILES = f"{_CODE}resctrl/"


class Killed(BaseException):
    """The agent is dead."""


class Killer:
    """Kills the agent at the n-th operation on a file, or at the n-th line that it had not come to since it was armed.

    :ivar places: the places where it was killed so far: a line of code, and the operation on a file if one was next.
    :ivar kills: how often it was killed so far.
    """

    def __init__(self) -> None:
        self.places: set[str] = set()
        self.kills = 0
        self._operations = 0
        self._lines = 0
        self._seen: set[tuple[str, int]] = set()

    def arm(self, *, operations: int = 0, lines: int = 0) -> None:
        """Kill the agent at this operation, or at this line, counted from 1; 0 is never."""
        self._operations, self._lines = operations, lines
        self._seen.clear()

    def before(self, operation: str, path: str) -> None:
        """Called before each operation of the agent's on a file of resctrl.

        :raises Killed: if it is the agent's last moment.
        """
        if self._operations:
            self._operations -= 1
            if not self._operations:
                self._kill(f"{_caller()} before it would {operation} {path.rpartition('/')[2] or '/'}")

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count the lines that the block comes to in the agent's code."""
        if not self._lines:
            yield
            return
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._on_line if frame.f_code.co_filename.startswith(_PLACES) else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and self._lines:
            line = frame.f_code.co_filename, frame.f_lineno
            if line not in self._seen:
                self._seen.add(line)
                if len(self._seen) == self._lines:
                    self._kill(_place(*line))
        return self._on_line

    def _kill(self, place: str) -> None:
        self.arm()
        self.places.add(place)
        self.kills += 1
        raise Killed(place)


def _caller() -> str:
    """The line of the agent's code that asked for an operation on a file."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_PLACES) and not file.startswith(_FILES):
            return _place(file, frame.f_lineno)
        frame = frame.f_back
    return "elsewhere"


def _place(file: str, line: int) -> str:
    return f"{file.removeprefix(_CODE)}:{line}"
