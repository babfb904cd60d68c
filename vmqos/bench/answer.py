# SPDX-License-Identifier: Apache-2.0
"""What an experiment found, as the JSON that ``vmqos bench noisy-neighbor -f json`` prints."""

from __future__ import annotations

from typing import Any

from vmqos.bench import figures
from vmqos.bench.experiment import Measured
from vmqos.bench.setting import Setting


def build(setting: Setting, measured: Measured, command: str) -> dict[str, Any]:
    """Everything that is to be known of it; sizes in bytes, masks hexadecimal.

    The reason why the figures mean nothing, where they do, is the first of ``remarks``.

    :param command: the operator's, if one was measured.
    """
    place, phases = setting.place, measured.phases
    remarks = [f"the figures mean nothing: {setting.meaningless}"] if setting.meaningless else []
    remarks += [*setting.remarks, *filter(None, [figures.drift(phases["alone"], phases["alone_again"])])]
    chases = not command
    return {
        "meaningful": not setting.meaningless,
        "verdict": figures.verdict(phases),
        "remarks": remarks,
        "cache": {
            "id": place.cache,
            "size_bytes": place.size,
            "ways": setting.total_ways,
            "way_bytes": place.size // setting.total_ways if place.size else None,
        },
        "ways": measured.loan.mask.count,
        "mask": str(measured.loan.mask),
        "victim": {
            "name": f"VM {setting.vm.name}" if setting.vm else command or "following pointers",
            "cpus": sorted(place.victim),
            "working_set_bytes": setting.working_set if chases else None,
            "command": command or None,
        },
        "neighbor": {"name": measured.neighbor, "cpus": sorted(place.neighbors)},
        "unit": measured.unit,
        "phases": {name: figures.as_json(times) for name, times in phases.items()},
        "ratios": figures.ratios(phases),
    }
