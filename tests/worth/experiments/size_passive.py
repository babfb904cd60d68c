# SPDX-License-Identifier: Apache-2.0
"""How many ways a VM needs, as its past tells it, of loads whose need is known, natively: no guest."""

from __future__ import annotations

import sys
from typing import Any

from tests.worth.experiments.size import DRAWN
from tests.worth.native import Load, Order
from tests.worth.size.loads import KINDS, SIZE, WALKS, draw
from tests.worth.size.passive import Watched, watched

FIRST = 300_000
"""Seeds that no law was tuned to."""
HARDLY = "walker, hardly larger than the cache"
"""The hardest case: it fills nearly all, and misses, and would miss everything with a way less."""


def run() -> dict[str, Any]:
    """By kind, what came of each load."""
    found: dict[str, Any] = {kind: [] for kind in (*KINDS, HARDLY)}
    for number, seed in enumerate(range(FIRST, FIRST + DRAWN)):
        part = 1.0 + 0.5 * number / (DRAWN - 1)
        drawn = {**draw(seed), HARDLY: [Load(Order.SHUFFLED, int(part * SIZE), WALKS)]}
        for kind, loads in drawn.items():
            found[kind].append(figures(watched(loads, seed)))
        end = "\r" if sys.stdout.isatty() else "\n"
        print(f"size_passive: {number + 1} of {DRAWN} loads of each kind", end=end, flush=True)
    return found


def figures(one: Watched) -> dict[str, Any]:
    """What is kept of one load; of one that nothing is told of, what was held alone."""
    found = one.found
    held = {"least": round(found.least, 2), "most": round(found.most, 2)}
    if not found.curve:
        return held
    told = {"worst": round(one.worst, 4), "knee": found.knee, "true": one.knee}
    return {**held, **told, "ways": list(found.curve)}
