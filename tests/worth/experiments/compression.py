# SPDX-License-Identifier: Apache-2.0
"""A VM that compresses: with fewer ways, beside noisy neighbours, and with these in a class of low priority.

Intel's tutorial on CAT has a compression job: 28 % slower in one way, not in two, 20 % slower with noisy neighbours in
its class, 8 % with these in a class of low priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kernel.cachemodel import switch
from tests.worth import cost, window
from tests.worth.four_cases import CACHE, KIB, modelled
from tests.worth.loads import Load
from tests.worth.node import NOTHING, Node, Worker
from tests.worth.rounds import mean_of

TEXT, TABLE = 128 * KIB, 128 * KIB
"""With what is written, 320 KiB: more than a way's 256 KiB, less than two ways'."""
JOB = Load("compress", TEXT, every=4 * KIB, table=TABLE)
NEIGHBOURS = {"noise-1": Load("stream", 4 * CACHE, every=1 << 19), "noise-2": Load("copy", 2 * CACHE, every=1 << 19)}
LOW_PRIORITY = {"hw:cache_ways": "1", "hw:cache_policy": "shared"}
WARM, MEASURED = 4 * TEXT, 16 * TEXT
SOURCE = {"alone": 0.0, "one way": 0.28, "two ways": 0.0, "noisy, same class": 0.20, "noisy, low priority": 0.08}


def run(node: Node) -> dict[str, Any]:
    """How much longer a byte takes than alone, weighed; and misses for a byte."""
    job, *neighbours = node.start_all({"job": JOB, **NEIGHBOURS}, {"job": "1", "noise-1": "2", "noise-2": "3"})
    for neighbour in neighbours:
        neighbour.pause()
    with modelled():
        found: dict[str, Any] = mean_of(lambda: _all_cases(node, job, neighbours))
    alone = found["alone"]["ns_per_byte"]
    return {
        case: {**one, "slower": one["ns_per_byte"] / alone - 1, "source": SOURCE[case]} for case, one in found.items()
    }


def _all_cases(node: Node, job: Worker, neighbours: Sequence[Worker]) -> dict[str, dict[str, float]]:
    """Each case once; the neighbours are paused before and after."""
    found = {}

    def measure(case: str) -> None:
        print(f"compression: {case}", flush=True)
        switch.empty()
        seen = window.measure(node, (job,), (job,), WARM, MEASURED)["job"]
        found[case] = {
            "ns_per_byte": cost.per_access(seen.model, seen.accesses),
            "misses_per_byte": seen.model.data.memory / seen.accesses,
            "code_misses_per_byte": seen.model.fetch.memory / seen.accesses,
            "miss_ratio": seen.miss_ratio,
        }

    measure("alone")
    for case, ways in (("one way", "1"), ("two ways", "2")):
        node.promise(job, {"hw:cache_ways": ways})
        measure(case)
    node.promise(job, NOTHING)
    for neighbour in neighbours:
        neighbour.resume()
    measure("noisy, same class")
    node.promise_all(dict.fromkeys(neighbours, LOW_PRIORITY))
    measure("noisy, low priority")
    node.promise_all(dict.fromkeys(neighbours, NOTHING))
    for neighbour in neighbours:
        neighbour.pause()
    return found
