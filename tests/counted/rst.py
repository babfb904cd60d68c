# SPDX-License-Identifier: Apache-2.0
"""What such pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def titled(title: str, text: str) -> str:
    """A section."""
    return f"{title}\n{'-' * len(title)}\n\n{text}"


def table(rows: Iterable[Sequence[str]]) -> str:
    """A list table, whose first row is the header: it needs no alignment of columns."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        for number, cell in enumerate(row):
            lines.append(f"   {'*' if number == 0 else ' '} - {cell}".rstrip())
    return "\n".join(lines) + "\n"


def joined(parts: Iterable[str]) -> str:
    """The page that consists of these parts."""
    return "\n\n".join(part.rstrip("\n") + "\n" for part in parts)
