# SPDX-License-Identifier: Apache-2.0
"""How many ways real programs need, as ``vmqos size`` says it in a guest, beside the truth of the model."""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.kernel.cachemodel import switch
from tests.worth.four_cases import KIB
from tests.worth.inside import tell
from tests.worth.loads import Load
from tests.worth.node import CALM, Node, Worker
from tests.worth.size.programs import linux
from tests.worth.size.programs.cost import Done, cost, count_kernel
from tests.worth.size.programs.loads import PROGRAMS
from tests.worth.size.programs.watch import Watch, Watching, truth, uncounted
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
CPUS = (1, 2, 3)
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

    def note(name: str, worker: Worker, figures: dict[str, Any]) -> None:
        said = worker.console.read_bytes()
        if said.strip(b".") != b"ready\n":
            raise RuntimeError(f"{name} in the VM said {said!r}")
        found["programs"][name] = figures
        tell({"size_programs": found})

    failed = []
    for number, (name, worker) in enumerate(_started(node, names).items()):
        worker.resume()
        try:
            node.promise(worker, {"hw:cache_ways": str(BASE)})
            with switch.on(sample=SAMPLE, l2size=L2, curves=CURVES):
                _size(node, worker, _cpu(number), functools.partial(note, name, worker))
        except Exception:
            traceback.print_exc()
            failed.append(name)
        node.remove(worker)
    if failed:
        raise RuntimeError(f"not sized to the end: {', '.join(failed)}")
    return found


def joined(before: Mapping[str, Any] | None, found: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of all programs once some were run: of the others it is what was found before.

    :param before: ``None``: nothing was found before. What was found with other versions of the programs is forgotten.
    """
    kept = before["programs"] if before is not None and before["versions"] == found["versions"] else {}
    programs = {**kept, **found["programs"]}
    return {"versions": found["versions"], "programs": {name: programs[name] for name in PROGRAMS if name in programs}}


def _started(node: Node, names: tuple[str, ...]) -> dict[str, Worker]:
    """A VM for each program, paused in one of its rounds: they boot together, for that takes longest."""

    paths = [node.workspace.path / f"{name}.initrd" for name in names]
    systems = [linux.build(path, PROGRAMS[name]) for path, name in zip(paths, names, strict=True)]

    def start(number: int, name: str) -> Worker:
        load = Load(name, linux.MEMORY, every=1)
        worker = node.start(f"program-{number}", load, cpus=str(_cpu(number)), linux=systems[number])
        node.wait_for(lambda: worker.progress() > 0, f"the first round of {name}")
        worker.pause()
        print(f"size_programs: {name} has begun", flush=True)
        return worker

    with ThreadPoolExecutor(len(CPUS)) as pool:
        return dict(zip(names, pool.map(start, range(len(names)), names), strict=True))


def _cpu(number: int) -> int:
    return CPUS[number % len(CPUS)]


def _size(node: Node, worker: Worker, cpu: int, note: Note) -> None:
    """Size one VM, and note what came of it so far with each number of ways."""
    rmid = node.rmid(worker)
    watch = Watch(rmid, worker.uuid, cpu)
    client = Watching(str(node.agent.socket), watch=watch)
    count_kernel(cpu)
    rounds = worker.progress() + ROUNDS
    time.sleep(WARM)
    node.wait_for(lambda: worker.progress() >= rounds, "the program's first rounds")
    before = watch.done()
    time.sleep(BEFORE)
    before = watch.done() - before

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


def figures(watch: Watch, before: Done, sized: Sized | None = None) -> dict[str, Any]:
    """What is kept of one VM.

    :param before: what was counted before it was tried.
    :param sized: what the command said; ``None`` while it is not at its end.
    """
    true, during = truth(watch.steps), watch.steps[-1].done - watch.steps[0].done
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
        "cut": sized is None or not _is_whole(sized),
        "samples": sum(map(len, watch.samples.values())),
        "cost": round(cost(before, during, watch.steps[0].ways), 4),
    }


def _is_whole(sized: Sized) -> bool:
    """Whether all numbers of ways were tried that were to be, or it misses next to nothing with the last one."""
    return sized.tried == sized.room.most or sized.points[-1].missed <= law.SURE
