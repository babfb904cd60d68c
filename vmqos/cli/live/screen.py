# SPDX-License-Identifier: Apache-2.0
"""A terminal that is drawn on and asked for keys.

Only lines that have changed are sent, so that it is calm and works over a slow connection.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from vmqos.cli.show.terminal import Terminal

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
"""The alternate screen, no cursor, nothing on it."""
_LEAVE = "\x1b[?25h\x1b[?1049l"

KEYS = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "home",
    b"\x1bOH": "home",
    b"\x1b[1~": "home",
    b"\x1b[F": "end",
    b"\x1bOF": "end",
    b"\x1b[4~": "end",
    b" ": "space",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\x08": "backspace",
    b"\x15": "clear",
}
"""What terminals send for keys that are no letters (xterm's ctlseqs, and the Linux console's)."""

ESCAPE_PAUSE = 0.05
"""Seconds to wait for the rest of a sequence. The Escape key sends what every sequence begins with, and no more."""


def parse_keys(raw: bytes) -> list[str]:
    """The keys in what a terminal sent: names of :data:`KEYS`, ``escape``, or characters. What is none is passed over.

    :param raw: whole sequences: a lone escape character at the end is the Escape key.
    """
    found = []
    while raw:
        known = next((code for code in KEYS if raw.startswith(code)), None)
        if raw == b"\x1b":
            found.append("escape")
            raw = b""
        elif known is not None:
            found.append(KEYS[known])
            raw = raw[len(known) :]
        elif raw[:1] == b"\x1b":
            raw = _behind_sequence(raw[1:])
        else:
            character, raw = _first_character(raw)
            if character.isprintable():
                found.append(character)
    return found


def _first_character(raw: bytes) -> tuple[str, bytes]:
    """The first character of UTF-8 text and what follows it; a line feed, which is no key, for a byte that is none."""
    for length in range(1, 5):
        try:
            return raw[:length].decode(), raw[length:]
        except UnicodeDecodeError:
            continue
    return "\n", raw[1:]


def _behind_sequence(raw: bytes) -> bytes:
    """What follows some other key's sequence, which ends with a letter or a tilde, or where another one begins."""
    rest = raw[1:] if raw[:1] in (b"[", b"O") else raw
    while rest and rest[:1] != b"\x1b":
        code, rest = rest[0], rest[1:]
        if 0x40 <= code <= 0x7E:
            break
    return rest


def _readable(descriptors: Sequence[int], seconds: float | None = None) -> list[int]:
    """Wait until there is something to read from any of these, or until its other end is gone; which those are.

    This is no ``select``, which takes descriptors below 1024 alone: where there are many VMs, more files are open.

    :param seconds: how long to wait at most; ``None``: for ever.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(None if seconds is None else 1000 * seconds)]


class Screen:
    """The terminal as long as the block of :meth:`open` runs.

    :param output: the terminal.
    :param terminal: its abilities; its width is asked anew after each change.
    """

    def __init__(self, output: TextIO, terminal: Terminal) -> None:
        self._output = output
        self._fancy = terminal.fancy
        self._shown: list[str] = []
        self._size = (0, 0)
        self._keyboard = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._mode: list[Any] | None = None
        self._ended_by = 0
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)

    @contextlib.contextmanager
    def open(self) -> Iterator[Screen]:
        """Take the terminal, and give it back as it was, whatever happens."""
        handlers = {
            signal.SIGWINCH: self._on_resize,
            signal.SIGTSTP: self._on_stop,
            signal.SIGINT: self._on_end,
            signal.SIGTERM: self._on_end,
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            self._enter()
            yield self
        finally:
            with contextlib.suppress(OSError):
                self._leave()
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._wake_read)
            os.close(self._wake_write)

    @property
    def terminal(self) -> Terminal:
        """What it can show now."""
        return Terminal(self._fancy, shutil.get_terminal_size().columns)

    @property
    def lines(self) -> int:
        """How many lines it has now."""
        return shutil.get_terminal_size().lines

    def show(self, lines: Sequence[Text]) -> None:
        """Put lines on the screen, from the top; those that do not fit are left out."""
        size = shutil.get_terminal_size()
        if size != self._size:
            self._size, self._shown = size, []
            self._send("\x1b[2J")
        drawn = self._draw(lines[: size.lines], size.columns)
        sent = [
            f"\x1b[{number};1H{line}"
            for number, line in enumerate(drawn, 1)
            if number > len(self._shown) or line != self._shown[number - 1]
        ]
        if len(drawn) < len(self._shown):
            sent.append(f"\x1b[{len(drawn) + 1};1H\x1b[J")
        self._shown = drawn
        self._send("".join(sent))

    def wait(self) -> list[str]:
        """Wait for keys or for :meth:`wake`; the keys, if any: ``q`` after Ctrl-C, or when the terminal is gone.

        :raises SystemExit: after SIGTERM.
        """
        sources = [self._wake_read] if self._keyboard is None else [self._wake_read, self._keyboard]
        ready = _readable(sources)
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        if self._ended_by == signal.SIGINT:
            return ["q"]
        if self._ended_by:
            raise SystemExit(128 + self._ended_by)
        if self._keyboard is None or self._keyboard not in ready:
            return []
        raw = os.read(self._keyboard, 1024)
        if raw.endswith(b"\x1b") and _readable([self._keyboard], ESCAPE_PAUSE):
            raw += os.read(self._keyboard, 1024)
        return parse_keys(raw) if raw else ["q"]

    def wake(self) -> None:
        """End :meth:`wait`; from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    def _draw(self, lines: Sequence[Text], width: int) -> list[str]:
        drawing = io.StringIO()
        console = Console(
            file=drawing,
            width=width,
            force_terminal=self._fancy,
            color_system="auto" if self._fancy else None,
            highlight=False,
            markup=False,
            emoji=False,
        )
        for line in lines:
            console.print(line, no_wrap=True, overflow="crop", crop=True)
        drawn = drawing.getvalue().split("\n")[: len(lines)]
        # Behind a line that fills its row the cursor is still on the last column: clearing would take a character.
        return [f"{code}\x1b[K" if line.cell_len < width else code for code, line in zip(drawn, lines, strict=True)]

    def _send(self, text: str) -> None:
        if text:
            self._output.write(text)
            self._output.flush()

    def _enter(self) -> None:
        if self._keyboard is not None:
            self._mode = termios.tcgetattr(self._keyboard)
            tty.setcbreak(self._keyboard)
        self._size, self._shown = (0, 0), []
        self._send(_ENTER)

    def _leave(self) -> None:
        if self._keyboard is not None and self._mode is not None:
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._mode)
        self._send(_LEAVE)

    def _on_resize(self, number: int, frame: FrameType | None) -> None:
        self.wake()

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its own terminal back, and we take ours again when we go on."""
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()
        self.wake()

    def _on_end(self, number: int, frame: FrameType | None) -> None:
        """No exception from here: Python drops one that comes up while it tidies an object away."""
        self._ended_by = number
        self.wake()
