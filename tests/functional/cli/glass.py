# SPDX-License-Identifier: Apache-2.0
"""A terminal that a program runs in, and what is on its screen."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence

_SEQUENCE = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])")
_COLOUR = re.compile(r"\x1b\[[\d;]*[1-9][\d;]*m")


class Glass:
    """The screen, as far as full-screen programs without scrolling change it.

    :param lines: its height.
    :param columns: its width; what is written beyond it is an error.
    :ivar process: the program.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], lines: int, columns: int) -> None:
        self._said = ""
        # A terminal hands text on in pieces that may end within a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._lock = threading.Lock()
        self._reader, writer = pty.openpty()
        self._size(lines, columns)
        self.mode = termios.tcgetattr(writer)
        self._writer = writer
        self.process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=writer,
            stdout=writer,
            stderr=writer,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _size(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._reader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                select.select([self._reader], [], [])
                self._take()

    def _take(self) -> None:
        with self._lock:
            while select.select([self._reader], [], [], 0)[0]:
                self._said += self._decoder.decode(os.read(self._reader, 65536))

    @property
    def said(self) -> str:
        """Everything it has written."""
        # What the reading thread has not come to yet belongs to it.
        with contextlib.suppress(OSError):
            self._take()
        return self._said

    def resize(self, lines: int, columns: int) -> None:
        """Change the size, as a window manager does."""
        self._size(lines, columns)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._reader, keys.encode())

    def current_mode(self) -> list[object]:
        """How the terminal is set now."""
        return termios.tcgetattr(self._writer)

    @property
    def alternate(self) -> bool:
        """Whether the alternate screen is shown."""
        said = self.said
        return said.rfind("\x1b[?1049h") > said.rfind("\x1b[?1049l")

    @property
    def colours(self) -> bool:
        """Whether anything was coloured or bold."""
        return bool(_COLOUR.search(self.said))

    @property
    def lines(self) -> list[str]:
        """What is on the screen now; for programs that place each line."""
        said = self.said
        shown: dict[int, str] = {}
        line = column = 0
        at = 0
        while at < len(said):
            match = _SEQUENCE.match(said, at)
            if match is None:
                character = said[at]
                at += 1
                if character == "\n":
                    line, column = line + 1, 0
                elif character == "\r":
                    column = 0
                elif character.isprintable():
                    shown[line] = (
                        shown.get(line, "").ljust(column)[:column] + character + shown.get(line, "")[column + 1 :]
                    )
                    column += 1
                continue
            at = match.end()
            private, numbers, code = match.groups()
            if private:
                if numbers == "1049":
                    shown, line, column = {}, 0, 0
            elif code == "H":
                line, column = (int(number) - 1 for number in (numbers or "1;1").split(";"))
            elif code == "K":
                shown[line] = shown.get(line, "")[:column]
            elif code == "J" and numbers == "2":
                shown = {}
            elif code == "J":
                shown = {number: text for number, text in shown.items() if number < line}
        return [shown.get(number, "").rstrip() for number in range(max(shown, default=-1) + 1)]

    @property
    def text(self) -> str:
        """The same as one text."""
        return "\n".join(self.lines)

    def close(self) -> None:
        """End the program and the terminal."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._writer)
        self._thread.join(5)
        os.close(self._reader)


@contextlib.contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], lines: int = 24, columns: int = 100
) -> Iterator[Glass]:
    """Run a program in a terminal while the block runs."""
    glass = Glass(command, environment, lines, columns)
    try:
        yield glass
    finally:
        glass.close()
