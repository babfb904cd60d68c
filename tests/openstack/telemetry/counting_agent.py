# SPDX-License-Identifier: Apache-2.0
"""An agent that has counted what instances execute, on a socket: most machines of CI have nothing that counts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.unit.local_api.fake_agent import FakeAgent, serving
from vmqos.local_api import contract
from vmqos.telemetry.hardware_events import NAMES

PATH = "/v1/telemetry/hardware-events"


def counted(*counts: int) -> contract.VmHardwareEvents:
    """A VM of which this was counted."""
    rates = dict.fromkeys(NAMES, 1.0)
    told = dict(zip(NAMES, counts, strict=True))
    return {
        "since": 1.0,
        "counts": told,
        "rates": rates,
        "share": 1.0,
        "source": "perf",
        "reason": "",
        "reason_code": "",
    }


def counted_by_packages(cycles: int) -> contract.VmHardwareEvents:
    """A VM that perf does not count, and of which packages count the cycles."""
    told: contract.Counts = {**dict.fromkeys(NAMES), NAMES[0]: cycles}
    return {**uncounted("perf counts nothing here"), "since": 2.0, "counts": told, "source": "aet"}


def uncounted(reason: str) -> contract.VmHardwareEvents:
    """A VM that is not counted."""
    nothing = dict.fromkeys(NAMES)
    return {
        "since": None,
        "counts": nothing,
        "rates": nothing,
        "share": None,
        "source": "",
        "reason": reason,
        "reason_code": "refused",
    }


@contextmanager
def on(socket: Path, vms: Mapping[str, contract.VmHardwareEvents]) -> Iterator[FakeAgent]:
    """Have it answer there."""
    agent = FakeAgent()
    answer: contract.HardwareEvents = {
        "taken_at": time.time(),
        "interval": 2.0,
        "age_seconds": 0.5,
        "unavailable": "",
        "vms": dict(vms),
    }
    agent.answers[PATH] = answer
    with serving(agent, str(socket)):
        yield agent
