# SPDX-License-Identifier: Apache-2.0
"""What the VMs' tasks execute, as the JSON of ``/v1/telemetry/hardware-events``."""

from __future__ import annotations

from collections.abc import Sequence

from vmqos.agent.sample.hardware_counts import HardwareCounts, Uncounted, VmCounts
from vmqos.agent.serve import health_report
from vmqos.local_api import contract
from vmqos.telemetry.hardware_events import NAMES


def report(hardware: HardwareCounts) -> contract.HardwareEvents:
    """The newest look."""
    look = hardware.newest()
    return {
        "taken_at": look.wall,
        "interval": hardware.interval,
        "age_seconds": health_report.age(look.monotonic),
        "unavailable": look.unavailable,
        "vms": {uuid: _vm(found) for uuid, found in look.vms.items()},
    }


def _vm(found: VmCounts | Uncounted) -> contract.VmHardwareEvents:
    if isinstance(found, Uncounted):
        nothing = _by_name(None)
        return {
            "since": None,
            "counts": nothing,
            "rates": nothing,
            "share": None,
            "reason": found.text,
            "reason_code": found.word,
        }
    return {
        "since": found.since,
        "counts": _by_name(found.counts),
        "rates": _by_name(found.rates),
        "share": found.share,
        "reason": "",
        "reason_code": "",
    }


def _by_name(values: Sequence[float] | None) -> contract.Counts:
    return dict(zip(NAMES, values, strict=True)) if values is not None else dict.fromkeys(NAMES)
