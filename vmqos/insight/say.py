# SPDX-License-Identifier: Apache-2.0
"""Figures as an operator reads them: measured ones in binary units, as in ``vmqos top`` and on the page.

Limits of memory bandwidth are in MB/s, as the kernel and the extra specs have them.
"""

from __future__ import annotations

_KIB, _MIB = 1 << 10, 1 << 20


def size(value: float) -> str:
    """Bytes."""
    return f"{value / _MIB:.1f} MiB" if value >= _MIB else f"{value / _KIB:.0f} KiB"


def bandwidth(value: float) -> str:
    """Bytes a second; always in MiB/s, so that those of a sentence can be compared at a glance."""
    return f"{value / _MIB:.0f} MiB/s" if value >= 10 * _MIB else f"{value / _MIB:.1f} MiB/s"


def percent(part: float) -> str:
    """A part of a whole."""
    return f"{100 * part:.0f} %"
