# SPDX-License-Identifier: Apache-2.0
"""Loads whose need of ways is known, drawn by seeds: ten kinds, and of each kind as many as there are seeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from tests.worth.native import Load, Order

SIZE, WAYS = 512 << 10, 16
"""The cache."""
WALKS = 20
"""Instructions for each access."""


def draw(seed: int) -> Mapping[str, Sequence[Load]]:
    """One load of each kind; those of two parts take turns."""
    chance = random.Random(seed)

    def part(least: float, most: float) -> int:
        return int(chance.uniform(least, most) * SIZE)

    return {kind: make(part) for kind, make in KINDS.items()}


def _one(order: Order, size: int = SIZE, *, item: int = 64, overlap: int = 1, stores: float = 0.0) -> list[Load]:
    return [Load(order, size, WALKS, item=item, overlap=overlap, stores=stores)]


def _turns(size: int) -> list[Load]:
    return [
        Load(Order.ZIPF, size, WALKS, seconds=0.10),
        Load(Order.ENDLESS, instructions=WALKS, overlap=8, seconds=0.05),
    ]


KINDS: Mapping[str, Callable[[Callable[[float, float], int]], Sequence[Load]]] = {
    "walker, small": lambda part: _one(Order.SHUFFLED, part(0.10, 0.20)),
    "walker, middle": lambda part: _one(Order.SHUFFLED, part(0.30, 0.50)),
    "walker, large": lambda part: _one(Order.SHUFFLED, part(0.60, 0.90)),
    "array, again and again": lambda part: _one(Order.SEQUENTIAL, part(0.30, 0.70), overlap=4),
    "stream": lambda part: _one(Order.ENDLESS, overlap=8),
    "random, fits": lambda part: _one(Order.RANDOM, part(0.50, 0.90)),
    "random, too large": lambda part: _one(Order.RANDOM, part(1.5, 3.0)),
    "key-value store, small": lambda part: _one(Order.ZIPF, part(1.0, 2.0), item=256),
    "key-value store, large": lambda part: _one(Order.ZIPF, part(4.0, 8.0), item=1024, stores=0.1),
    "key-value store and stream, in turns": lambda part: _turns(part(1.0, 2.0)),
}
"""By kind, what makes a load of it; ``part`` gives a size between two parts of the cache."""
