# SPDX-License-Identifier: Apache-2.0
"""How many ways real programs need, as ``vmqos size`` says it in a guest, beside the truth of the model."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.kernel.cachemodel import switch
from tests.kernel.cachemodel.counts import Counts
from tests.worth.four_cases import KIB
from tests.worth.inside import tell
from tests.worth.loads import Load
from tests.worth.node import CALM, Node, Worker
from tests.worth.size.programs import linux
from tests.worth.size.programs.loads import PROGRAMS
from tests.worth.size.programs.watch import Watch, Watching, cycles, truth, uncounted
from vmqos.cli.size import stepping
from vmqos.cli.size.stepping import Sized
from vmqos.insight import size as law
from vmqos.local_api.client import AgentClient

BASE, MOST = 1, 8
"""Ways that a VM is promised, and the most that it is tried with."""
INTERVAL = 0.5
"""Seconds between two samples: an emulated processor makes as many accesses in it as a law needs."""
ROUNDS, WARM, BEFORE = 2, 5.0, 10.0
"""Rounds of the program, and seconds, for which it runs before anything is counted; and seconds for which it is counted
before anybody asks how much it needs."""
CPUS = ("1", "2", "3")
L2 = 256 * KIB
"""Bytes of a CPU's own cache. The kernel's ticks come as often as in hardware, to a processor that does a hundredth of
the work between two of them: what they need is to stay in this cache, as it does in hardware."""
SAMPLE, CURVES = 2, 8
"""One of ``2 ** SAMPLE`` sets of the caches is modelled, and stack distances of so many RMIDs are counted."""

Note = Callable[[dict[str, Any]], None]


def run(node: Node, names: tuple[str, ...] = tuple(PROGRAMS)) -> dict[str, Any]:
    """What came of each program; it is printed with each number of ways, so that a run that is cut short leaves it."""
    node.agent.stop()
    node.agent.configure({**CALM, "telemetry": {"interval": INTERVAL, "hardware_events": False}})
    node.agent.start()
    found: dict[str, Any] = {"versions": dict(linux.versions()), "programs": {}}

    def note(name: str, figures: dict[str, Any]) -> None:
        found["programs"][name] = figures
        tell({"size_programs": found})

    for name, worker in _started(node, names).items():
        worker.resume()
        node.promise(worker, {"hw:cache_ways": str(BASE)})
        with switch.on(sample=SAMPLE, l2size=L2, curves=CURVES):
            _size(node, worker, functools.partial(note, name))
        said = worker.console.read_bytes()
        node.remove(worker)
        if said.strip(b".") != b"ready\n":
            raise RuntimeError(f"{name} in the VM said {said!r}")
    return found


def _started(node: Node, names: tuple[str, ...]) -> dict[str, Worker]:
    """A VM for each program, paused in one of its rounds: they boot together, for that takes longest."""

    paths = [node.workspace.path / f"{name}.initrd" for name in names]
    systems = [linux.build(path, PROGRAMS[name]) for path, name in zip(paths, names, strict=True)]

    def start(number: int, name: str) -> Worker:
        load, cpu = Load(name, linux.MEMORY, every=1), CPUS[number % len(CPUS)]
        worker = node.start(f"program-{number}", load, cpus=cpu, linux=systems[number])
        node.wait_for(lambda: worker.progress() > 0, f"the first round of {name}")
        worker.pause()
        print(f"size_programs: {name} has begun", flush=True)
        return worker

    with ThreadPoolExecutor(len(CPUS)) as pool:
        return dict(zip(names, pool.map(start, range(len(names)), names), strict=True))


def _size(node: Node, worker: Worker, note: Note) -> None:
    """Size one VM, and note what came of it so far with each number of ways."""
    rmid = node.rmid(worker)
    watch = Watch(rmid, worker.uuid)
    client = Watching(str(node.agent.socket), watch=watch)
    rounds = worker.progress() + ROUNDS
    time.sleep(WARM)
    node.wait_for(lambda: worker.progress() >= rounds, "the program's first rounds")
    before = watch.read()
    time.sleep(BEFORE)
    before = watch.read() - before

    at = 0

    def report(ways: int, part: float) -> None:
        nonlocal at
        if ways != at:
            at = ways
            print(f"size_programs: {worker.load.walk} with {ways} ways", flush=True)
            if len(watch.steps) > 1:
                note(figures(watch, before))

    (vm,) = (one for one in AgentClient.vms(client) if one["uuid"] == worker.uuid)
    room = stepping.find(client, vm, None, MOST)
    stepping.check(room, INTERVAL)
    sized = stepping.run(client, room, INTERVAL, report)
    if node.rmid(worker) != rmid:
        raise RuntimeError("the VM has another RMID than before it was tried")
    note(figures(watch, before, sized))


def figures(watch: Watch, before: Counts, sized: Sized | None = None) -> dict[str, Any]:
    """What is kept of one VM.

    :param before: what was counted before it was tried.
    :param sized: what the command said; ``None`` while it is not at its end.
    """
    true, during = truth(watch.steps), watch.steps[-1].counts - watch.steps[0].counts
    watched = {ways: watch.samples[ways][1:] for ways in true}
    found = sized.found if sized else law.size([law.point(ways, of) for ways, of in watched.items()])
    return {
        "missed": {str(ways): round(missed, 4) for ways, missed in found.curve.items()},
        "true": {str(ways): round(missed, 4) for ways, missed in true.items()},
        "knee": found.knee,
        "true knee": law.knee(true),
        "knee without": law.size([law.point(ways, uncounted(of)) for ways, of in watched.items()]).knee,
        "is steady": found.is_steady,
        "ended": sized.ended if sized else "",
        "cut": sized is None,
        "samples": sum(map(len, watch.samples.values())),
        "cost": round(1 - _work(during) / _work(before), 4),
    }


def _work(counts: Counts) -> float:
    """Instructions in a cycle."""
    return counts.instructions / cycles(counts)
