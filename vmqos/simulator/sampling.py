# SPDX-License-Identifier: Apache-2.0
"""Letting the counters move with what the host's tasks do."""

from __future__ import annotations

from vmqos.simulator.hardware import Hardware
from vmqos.simulator.state import Mounted


def sample(hardware: Hardware, mounted: Mounted | None) -> None:
    """Bring the counters up to date."""
