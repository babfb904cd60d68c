# SPDX-License-Identifier: Apache-2.0
"""What pqos costs whatever it is asked for, to be taken off its other figures by whoever likes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.arena import PQOS, Arena
from tests.benchmarks.contest import compare
from tests.benchmarks.figures import Comparison, Effort


def run(arena: Arena, effort: Effort) -> Iterator[Comparison]:
    """Start it and have it say what the machine can do."""
    with arena.group():
        sides = arena.pqos_sides("--display")
        if sides:
            yield compare(f"the start of {PQOS}, and its end", sides, effort)
