# SPDX-License-Identifier: Apache-2.0
"""Figures as an operator reads them."""

from __future__ import annotations


def size(value: float) -> str:
    """Bytes."""
    return f"{value / (1 << 20):.1f} MiB" if value >= 1 << 20 else f"{value / (1 << 10):.0f} KiB"


def bandwidth(value: float) -> str:
    """Bytes a second."""
    return f"{value / 1e6:.0f} MB/s" if value >= 1e7 else f"{value / 1e6:.1f} MB/s"


def percent(part: float) -> str:
    """A part of a whole."""
    return f"{100 * part:.0f} %"
