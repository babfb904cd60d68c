# SPDX-License-Identifier: Apache-2.0
"""A batch VM is limited to one way, so that a stream benchmark gains.

In 2016 the STREAM benchmark on a host went from 1842 to 2592 MB/s when a VM beside it was limited to one way.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.kernel.cachemodel import switch
from tests.worth import cost, window
from tests.worth.four_cases import CACHE, modelled
from tests.worth.loads import Load
from tests.worth.node import NOTHING, Node, Worker
from tests.worth.rounds import mean_of

STREAMS = {"fits": Load("copy", CACHE // 2, every=1 << 12), "does not fit": Load("copy", 2 * CACHE, every=1 << 12)}
BATCH = Load("stream", 4 * CACHE, every=1 << 16)
ONE_WAY = {"hw:cache_ways": "1", "hw:cache_policy": "shared"}


def run(node: Node) -> dict[str, Any]:
    """The benchmark's bandwidth, weighed, in MB/s: by its size, and by what the batch VM has."""
    batch = node.start("batch", BATCH, cpus="2")
    found = {}
    for name, load in STREAMS.items():
        stream = node.start("stream", load, cpus="1")
        with modelled():
            both = mean_of(partial(_both_cases, node, name, stream, batch))
        found.update({f"{name}, {case}": one for case, one in both.items()})
        node.remove(stream)
    return found


def _both_cases(node: Node, name: str, stream: Worker, batch: Worker) -> dict[str, dict[str, float]]:
    lines = STREAMS[name].size // window.LINE
    found = {}
    for case in ("free", "one way"):
        print(f"capped_batch: the benchmark {name}, batch VM: {case}", flush=True)
        node.promise(batch, NOTHING if case == "free" else ONE_WAY)
        switch.empty()
        seen = window.measure(node, (stream, batch), (stream,), 2 * lines, 6 * lines)
        ns = cost.per_access(seen["stream"].model, seen["stream"].accesses)
        found[case] = {
            "mb_per_second": window.LINE / ns * 1000,
            "miss_ratio": seen["stream"].miss_ratio,
            "batch_miss_ratio": seen["batch"].miss_ratio,
        }
    return found
