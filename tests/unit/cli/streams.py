# SPDX-License-Identifier: Apache-2.0
"""Streams that say of themselves whether they are a terminal."""

from __future__ import annotations

import io


class Stream(io.StringIO):
    """What is typed there is read, and what is drawn there can be looked at.

    :param typed: what a reader gets.
    """

    def __init__(self, typed: str = "", *, encoding: str = "utf-8", is_terminal: bool = True) -> None:
        super().__init__(typed)
        self._encoding = encoding
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding
