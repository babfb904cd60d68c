# SPDX-License-Identifier: Apache-2.0
"""The simulator, in which every group holds cache and moves bytes all the time, by the clock alone.

VMs that are paused do neither, and an agent has less to do where nothing moves. It takes the simulator's own arguments.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from unittest.mock import patch

from vmqos.simulator import __main__ as simulator
from vmqos.simulator.hardware.counters import Counters

MIB = 1 << 20
UNIT = 61440
"""Bytes: resctrl tells whole units of the hardware's."""


def moving(self: Counters, rmids: Sequence[int], domains: Sequence[int], event: str) -> str:
    """What a counter file shows: a sum over RMIDs and domains, each of which wobbles by a tenth."""
    now = time.monotonic()
    return str(sum(_value(rmid, domain, event, now) for rmid in rmids for domain in domains) // UNIT * UNIT)


def _value(rmid: int, domain: int, event: str, now: float) -> int:
    period, phase = 5 + rmid % 13, rmid + 7 * domain
    turn = 2 * math.pi / period
    if event == "llc_occupancy":
        return int((50 + rmid % 50) * UNIT * (1 + 0.1 * math.sin(turn * now + phase)))
    # The integral of a bandwidth that wobbles: it only grows.
    moved = now + 0.1 / turn * math.sin(turn * now + phase)
    return int((50 + rmid % 200) * MIB * moved * (1.0 if event == "mbm_total_bytes" else 0.8))


if __name__ == "__main__":
    with patch.object(Counters, "read", moving):
        simulator.main()
