# SPDX-License-Identifier: Apache-2.0
"""The channel to memory in the mean, as CPUs of a guest feel it, is held to a queue of some lines of Python."""

from __future__ import annotations

import ctypes
import heapq
import random
from collections.abc import Sequence

import pytest

SECOND = 1_000_000_000
SERVICE = 10_000
"""ns that a line takes at the channel by itself."""
GRAIN = 200_000
"""A CPU stands still once it owes so many ns (``STALL_GRAIN_NS``)."""
VISITOR = 64
"""Bytes of a ``struct visitor``."""


def _queue(thinking: Sequence[float], seconds: int) -> list[float]:
    """Lines a second of CPUs that think for a while, on average so many ns, and then need a line, one at a time."""
    chance = random.Random(1)
    free, served = 0.0, [0] * len(thinking)
    coming = [(chance.expovariate(1 / z), cpu) for cpu, z in enumerate(thinking)]
    heapq.heapify(coming)
    while coming[0][0] < seconds * SECOND:
        now, cpu = heapq.heappop(coming)
        free = max(free, now) + SERVICE
        served[cpu] += 1
        heapq.heappush(coming, (free + chance.expovariate(1 / thinking[cpu]), cpu))
    return [count / seconds for count in served]


def _felt(library: ctypes.CDLL, thinking: Sequence[float], seconds: int) -> list[float]:
    """The same of CPUs that run ahead of the time that they owe, and then stand still for all of it."""
    chance = random.Random(2)
    count = len(thinking)
    visitors = ctypes.create_string_buffer(VISITOR * count)
    served, owed = [0] * count, [0.0] * count
    coming = [(SECOND + chance.expovariate(1 / z), cpu) for cpu, z in enumerate(thinking)]
    heapq.heapify(coming)
    while coming[0][0] < (seconds + 1) * SECOND:
        now, cpu = heapq.heappop(coming)
        owed[cpu] += library.channel_visit(visitors, count, cpu, ctypes.c_uint64(int(now)), ctypes.c_uint64(SERVICE))
        served[cpu] += 1
        if owed[cpu] >= GRAIN:
            now, owed[cpu] = now + owed[cpu], 0.0
        heapq.heappush(coming, (now + chance.expovariate(1 / thinking[cpu]), cpu))
    return [lines / seconds for lines in served]


@pytest.mark.parametrize(
    "thinking",
    [
        (1.0,),
        (1.0, 1.0),
        (1.0, 1.0, 1.0, 1.0),
        (1.0, 50_000.0),
        (5_000.0, 20_000.0),
        (1.0, 1.0, 100_000.0),
        (10_000.0, 10_000.0, 40_000.0, 400_000.0),
    ],
)
def test_the_mean_is_that_of_a_queue_and_no_more_than_there_is(replay: ctypes.CDLL, thinking: Sequence[float]) -> None:
    queued, felt = _queue(thinking, 2), _felt(replay, thinking, 2)
    print([f"{one / 1000:.1f} {other / 1000:.1f}" for one, other in zip(queued, felt, strict=True)])
    # Each line takes as long here, so half of the one that is underway is done when another comes: the mean counts it
    # in full.
    assert felt == pytest.approx(queued, rel=1 / 6)
    assert sum(felt) * SERVICE < SECOND * 1.02
