# SPDX-License-Identifier: Apache-2.0
"""``info/last_cmd_status``: the kernel's buffer of messages about the last command."""

from __future__ import annotations

SIZE = 512
"""The buffer's length in bytes (``last_cmd_status_buf``)."""


class LastCommandStatus:
    """A ``seq_buf`` of 512 bytes: once a message did not fit, nothing more is added until it is cleared."""

    def __init__(self) -> None:
        self._text = ""
        self._overflowed = False

    def clear(self) -> None:
        """Forget every message."""
        self._text = ""
        self._overflowed = False

    def puts(self, message: str) -> None:
        """Add a constant message, whole or (``seq_buf_puts``) not at all."""
        if self._overflowed:
            return
        if len(self._text) + len(message) + 1 > SIZE:
            self._overflowed = True
        else:
            self._text += message

    def printf(self, message: str) -> None:
        """Add a formatted message; what does not fit is cut off (``seq_buf_vprintf``)."""
        if self._overflowed:
            return
        self._overflowed = len(self._text) + len(message) >= SIZE
        self._text = (self._text + message)[: SIZE - 1]

    def show(self) -> str:
        """What a reader of the file sees."""
        if self._text or self._overflowed:
            return self._text
        return "ok\n"
