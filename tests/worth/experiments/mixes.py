# SPDX-License-Identifier: Apache-2.0
"""Mixes of 4 to 12 VMs: sharing everything, capping those that stream, and partitioning everything.

KPart (HPCA 2018) found that partitions for each program by itself hurt 30 % of its mixes: ways are few and coarse, and
what one holds exclusively, nobody else can use meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from tests.worth import cost, window
from tests.worth.four_cases import CACHE, KIB, modelled
from tests.worth.loads import Load
from tests.worth.node import NOTHING, Node, Worker
from tests.worth.rounds import mean_of
from tests.worth.sections.mixes import BY_NEED, CAPPED, EVENLY, POLICIES

KINDS = {
    "sensitive": Load("chase", 768 * KIB, every=1024, work=8),
    "streaming": Load("stream", 2 * CACHE, every=4096),
    "light": Load("chase", 96 * KIB, every=1024, work=8),
}
LINES = KINDS["sensitive"].size // window.LINE
WARM, MEASURED = 2 * LINES, 2 * LINES
"""Accesses of each VM: rounds of a sensitive one."""
ALONE = 4 * LINES
"""Accesses of a VM alone."""

SHAREABLE = 14
"""Ways that can be given out: the default group keeps two."""
CAP = {"hw:cache_ways": "2", "hw:cache_policy": "shared"}

MIXES = (
    {"sensitive": 2, "streaming": 0, "light": 2},
    {"sensitive": 2, "streaming": 1, "light": 1},
    {"sensitive": 4, "streaming": 0, "light": 4},
    {"sensitive": 3, "streaming": 2, "light": 3},
    {"sensitive": 5, "streaming": 3, "light": 4},
    {"sensitive": 4, "streaming": 5, "light": 3},
)
"""Of 4, 8 and 12 VMs, with none that streams up to nearly half."""
CPUS = ("1", "2", "3")

Promises = Mapping[str, Mapping[str, str]]


def promises(policy: str, mix: Mapping[str, int]) -> Promises:
    """What a policy promises to a VM of each kind in a mix."""
    total = sum(mix.values())
    if policy == CAPPED and mix["streaming"]:
        return {"sensitive": NOTHING, "streaming": CAP, "light": NOTHING}
    if policy == BY_NEED:
        rest = (SHAREABLE - mix["streaming"] - mix["light"]) // mix["sensitive"]
        return {"sensitive": _exclusive(rest), "streaming": _exclusive(1), "light": _exclusive(1)}
    return dict.fromkeys(KINDS, _exclusive(SHAREABLE // total) if policy == EVENLY else NOTHING)


def _exclusive(ways: int) -> Mapping[str, str]:
    return {"hw:cache_ways": str(ways)}


def run(node: Node) -> list[dict[str, Any]]:
    """For each mix and policy: misses of each kind, and how much slower each VM is than alone, weighed."""
    workers = _start(node)
    found = []
    alone = {kind: _alone(node, workers[kind][0]) for kind in KINDS}
    for number, mix in enumerate(MIXES, 1):
        members = {kind: workers[kind][: mix[kind]] for kind in KINDS}
        print(f"mix {number} of {len(MIXES)}: {mix}", flush=True)
        by_policy = mean_of(partial(_measure_mix, node, mix, members, alone))
        found.append({"mix": mix, "policies": by_policy})
    return found


def _start(node: Node) -> dict[str, list[Worker]]:
    """Start all VMs that any mix has, and stop them at once; by kind."""
    workers: dict[str, list[Worker]] = {}
    for turn, (kind, load) in enumerate(KINDS.items()):
        number = max(mix[kind] for mix in MIXES)
        print(f"starting {number} VMs: {kind}", flush=True)
        cpus = {f"{kind}-{one}": CPUS[(turn + one) % len(CPUS)] for one in range(number)}
        workers[kind] = node.start_all(dict.fromkeys(cpus, load), cpus)
        _pause(workers[kind])
    return workers


def _pause(workers: Iterable[Worker]) -> None:
    for worker in workers:
        worker.pause()


def _alone(node: Node, worker: Worker) -> float:
    with _at_work([worker]):
        seen = window.measure(node, (worker,), (worker,), ALONE, ALONE)[worker.vm.name]
    return cost.per_access(seen.model, seen.accesses)


@contextlib.contextmanager
def _at_work(workers: Collection[Worker]) -> Iterator[None]:
    """Let VMs work for a while, from empty caches on."""
    with modelled(sample=3):
        for worker in workers:
            worker.resume()
        try:
            yield
        finally:
            _pause(workers)


def _measure_mix(
    node: Node, mix: Mapping[str, int], members: Mapping[str, list[Worker]], alone: Mapping[str, float]
) -> dict[str, Any]:
    """One mix under each policy; what promises the same as another policy is measured once."""
    found: list[tuple[Promises, dict[str, Any]]] = []
    by_policy = {}
    for policy in POLICIES:
        wanted = promises(policy, mix)
        same = next((result for before, result in found if before == wanted), None)
        if same is None:
            print(f"{sum(mix.values())} VMs, {mix['streaming']} of them streaming: {policy}", flush=True)
            node.promise_all({worker: wanted[kind] for kind, of_kind in members.items() for worker in of_kind})
            same = _measure(node, members, alone)
            found.append((wanted, same))
        by_policy[policy] = same
    node.promise_all({worker: NOTHING for of_kind in members.values() for worker in of_kind})
    return by_policy


def _measure(node: Node, members: Mapping[str, list[Worker]], alone: Mapping[str, float]) -> dict[str, Any]:
    everybody = [worker for of_kind in members.values() for worker in of_kind]
    with _at_work(everybody):
        seen = window.measure(node, everybody, everybody, WARM, MEASURED)
    of_kinds = {kind: [seen[worker.vm.name] for worker in of_kind] for kind, of_kind in members.items() if of_kind}
    return {
        kind: {
            "misses": sum(one.model.data.memory for one in of_kind),
            "miss_ratio": sum(one.miss_ratio for one in of_kind) / len(of_kind),
            "slower": [cost.per_access(one.model, one.accesses) / alone[kind] - 1 for one in of_kind],
        }
        for kind, of_kind in of_kinds.items()
    }
