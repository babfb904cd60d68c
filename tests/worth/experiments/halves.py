# SPDX-License-Identifier: Apache-2.0
"""Two VMs on two halves of the cores, without classes and with half of the ways each: the misses of either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kernel.cachemodel import switch
from tests.worth import window
from tests.worth.four_cases import CACHE, KIB, modelled
from tests.worth.loads import Load
from tests.worth.node import NOTHING, Node, Worker
from tests.worth.rounds import mean_of

REUSER = Load("chase", 1280 * KIB, every=1024, work=8)
SCANNER = Load("random", 4 * CACHE, every=1 << 12)
HALF = {"hw:cache_ways": "7"}
"""The default group keeps two."""
LINES = REUSER.size // window.LINE


def run(node: Node) -> dict[str, Any]:
    """The miss ratios of both, by case, and the lines from memory for 1000 accesses."""
    both = node.start_all({"reuser": REUSER, "scanner": SCANNER}, {"reuser": "0-1", "scanner": "2-3"})
    with modelled():
        found: dict[str, Any] = mean_of(lambda: _both_cases(node, both))
    return found


def _both_cases(node: Node, both: Sequence[Worker]) -> dict[str, Any]:
    found = {}
    for case, promise in (("without classes", NOTHING), ("with classes", HALF)):
        print(f"halves: {case}", flush=True)
        node.promise_all(dict.fromkeys(both, promise))
        switch.empty()
        seen = window.measure(node, both, both[:1], 4 * LINES, 4 * LINES)
        found[case] = {
            name: {"miss_ratio": one.miss_ratio, "per_1000": 1000 * one.model.data.memory / max(1, one.accesses)}
            for name, one in seen.items()
        }
    return found
