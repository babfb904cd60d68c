# SPDX-License-Identifier: Apache-2.0
"""Which guest a test belongs into, and which one this is.

Guests import this too, whose processors are slow: so no more than it needs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """A machine and a kernel, by name."""

    machine: str
    kernel: str

    def __str__(self) -> str:
        return f"{self.machine}-{self.kernel}"

    @property
    def group(self) -> str:
        """Items of one pair belong to one worker of pytest-xdist."""
        return f"guest-{self}"


def _inside() -> Pair | None:
    machine, colon, kernel = os.environ.get("VMQOS_GUEST", "").partition(":")
    return Pair(machine, kernel) if colon else None


INSIDE = _inside()
"""The guest that this process is in, or ``None``."""
