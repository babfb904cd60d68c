# SPDX-License-Identifier: Apache-2.0
"""How long a handler takes that rests between two events, beside a noisy VM, free and capped.

At LinuxCon 2015 the average latency of such a task beside a noisy neighbour was 2.8 times better with classes.
"""

from __future__ import annotations

import statistics
from typing import Any

from tests.kernel.cachemodel import switch
from tests.worth import cost, events
from tests.worth.events import Event, Rest
from tests.worth.four_cases import CACHE, KIB, modelled
from tests.worth.loads import Load
from tests.worth.node import RESCTRL, Node
from tests.worth.window import LINE

NOISE = Load("stream", 4 * CACHE, every=1 << 16)
CAPPED = {"hw:cache_ways": "2", "hw:cache_policy": "shared"}
HANDLER, EVENTS = 128 * KIB, 80
"""Bytes that the handler walks through; how often."""
BETWEEN = 2 * CACHE // LINE
"""Lines that the neighbour reads between two events, at most: twice the cache."""
CPU = 3


def latency(event: Event) -> float:
    """Nanoseconds of one event, weighed."""
    return event.l3 * cost.L3_NS + event.memory * cost.MEMORY_NS


def spread(found: list[Event]) -> dict[str, Any]:
    """How long the events took."""
    taken = sorted(map(latency, found))
    return {
        "mean": statistics.fmean(taken),
        "median": statistics.median(taken),
        "worst": taken[-1],
        "all": [round(one) for one in taken],
    }


def run(node: Node) -> dict[str, Any]:
    """The handler's latencies in nanoseconds, by case."""
    program = events.build(node.workspace.path)
    noise = node.start("noise", NOISE, cpus="2")

    def measure(case: str, lines: int = BETWEEN) -> dict[str, Any]:
        print(f"jitter: {case}", flush=True)
        switch.empty()
        return spread(events.watch(program, RESCTRL, CPU, HANDLER, EVENTS, Rest(node.rmid(noise), lines)))

    with modelled():
        noise.pause()
        found = {"alone": measure("alone", lines=0)}
        noise.resume()
        found["noisy"] = measure("noisy")
        node.promise(noise, CAPPED)
        found["capped"] = measure("capped")
    return found
