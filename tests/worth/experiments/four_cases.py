# SPDX-License-Identifier: Apache-2.0
"""A VM alone, beside a noisy neighbour, with ways of its own, and beside a capped neighbour."""

from __future__ import annotations

from typing import Any

from tests.worth import cost, four_cases
from tests.worth.node import Node


def run(node: Node) -> dict[str, Any]:
    """Miss ratio and occupancy of both VMs, by case."""
    with four_cases.pair_on(node) as pair:
        cases = {
            **four_cases.measure(pair),
            "protected, agent stopped": four_cases.measure_without_agent(pair),
            "ways taken back": four_cases.measure_taken_back(pair),
        }
    return {
        "working_set": four_cases.WORKING_SET,
        "noise": four_cases.NOISE.size,
        "cases": {
            case: {
                "miss_ratio": seen["victim"].miss_ratio,
                "occupancy": seen["victim"].model.occupancy,
                "neighbour_occupancy": seen["noise"].model.occupancy,
                "ns_per_access": cost.per_access(seen["victim"].model, seen["victim"].accesses),
            }
            for case, seen in cases.items()
        },
    }
