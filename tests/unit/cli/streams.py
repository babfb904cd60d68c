# SPDX-License-Identifier: Apache-2.0
"""Streams that say of themselves that they are a terminal."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """A terminal: what is typed there is read, and what is drawn there can be looked at.

    :param typed: what a reader gets.
    """

    def __init__(self, typed: str = "", encoding: str = "utf-8") -> None:
        super().__init__(typed)
        self._encoding = encoding

    def isatty(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding
