# SPDX-License-Identifier: Apache-2.0
"""How many ways VMs without ways of their own need, as ``vmqos size`` finds it, natively: no guest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tests.worth.native import Load
from tests.worth.size.leaving import NEIGHBOURS, PLACES, Place, loads, room, tried, truth, worst

FIRST, DRAWN = 300_000, 3
"""Seeds that no law was tuned to, and how many loads of each kind are tried."""


def run() -> dict[str, Any]:
    """By where the VM was before, what its neighbour does and the kind of load: what came of each."""
    kinds = list(loads(FIRST))
    found: dict[str, Any] = {
        place: {neighbour: {kind: [] for kind in kinds} for neighbour in NEIGHBOURS} for place in PLACES
    }
    for seed in range(FIRST, FIRST + DRAWN):
        drawn = loads(seed)
        for place, by_neighbour in found.items():
            for neighbour, by_kind in by_neighbour.items():
                for kind in kinds:
                    by_kind[kind].append(figures(drawn[kind], NEIGHBOURS[neighbour], seed, PLACES[place]))
        end = "\r" if sys.stdout.isatty() else "\n"
        print(f"leaving: {seed - FIRST + 1} of {DRAWN} loads of each kind", end=end, flush=True)
    return found


def figures(load: Sequence[Load], neighbour: Load, seed: int, place: Place) -> dict[str, Any]:
    """What is kept of one load: how wrong its curve is if it is watched at once, and as late as can be; else by ways.

    By ways it is kept what it missed, what it would have missed, and what part of what fits it had in other ways.
    """
    true = truth(load, neighbour, seed, place.first)
    at_once = tried(load, neighbour, seed, place, lambda left, fits: True)
    late = tried(load, neighbour, seed, place, lambda left, fits: False)
    by_law = tried(load, neighbour, seed, place)
    return {
        "at once": round(worst(at_once.points, true), 4),
        "late": round(worst(late.points, true), 4),
        "left": round(late.left, 3),
        "turns": round(late.turns, 2),
        "waited": by_law.waited,
        "first": place.first,
        "missed": " ".join(f"{one.missed:.4f}" for one in by_law.points),
        "true": " ".join(f"{true[one.ways]:.4f}" for one in by_law.points),
        "still": " ".join(f"{by_law.still[one.ways] / room(one.ways):.3f}" for one in by_law.points),
    }
