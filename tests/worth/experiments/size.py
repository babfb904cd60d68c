# SPDX-License-Identifier: Apache-2.0
"""How many ways a VM needs, as insight says it of loads whose need is known, natively: no guest."""

from __future__ import annotations

import sys
from typing import Any

from tests.worth.size.loads import KINDS, draw
from tests.worth.size.stepping import Sized, sized

FIRST, DRAWN = 100_000, 20
"""Seeds that no law was tuned to, and how many loads of each kind are tried."""


def run() -> dict[str, Any]:
    """By kind, what came of each load: with a PMU, and without."""
    found: dict[str, Any] = {kind: {"pmu": [], "no pmu": []} for kind in KINDS}
    for seed in range(FIRST, FIRST + DRAWN):
        for kind, loads in draw(seed).items():
            for sight, counted in (("pmu", True), ("no pmu", False)):
                found[kind][sight].append(figures(sized(loads, seed, counted=counted)))
        end = "\r" if sys.stdout.isatty() else "\n"
        print(f"size: {seed - FIRST + 1} of {DRAWN} loads of each kind", end=end, flush=True)
    return found


def figures(one: Sized) -> dict[str, float]:
    """What is kept of one load."""
    return {
        "worst": round(one.worst, 4),
        "knee": one.found.knee,
        "true": one.knee,
        "seconds": one.seconds,
        "cost": round(one.cost, 4),
    }
