# SPDX-License-Identifier: Apache-2.0
"""A mix of VMs run in a guest: real VMs on the modelled caches, counted by the agent and by the model.

*Time.*  The seconds of an emulated machine are not those of its caches: how many cycles of a CPU pass in one is for the
other load of the machine below to say, and for each CPU another number. So a second of a mix is a number of cycles
that each VM has for itself: instructions, and what its lines from the L3 and from memory take, as the performance
counters of the machine have it (``tests/kernel/plugin/pmu.h``). A VM that has had its cycles stands still until all
have had theirs: the emulated CPU goes on with the kernel only (``CONTROL_CYCLES``). A process that stops VMs does not
do: on a busy machine a VM has had the cycles of three seconds before it comes to that, and then gets none for the next
two. They come to their cycles in :data:`TURNS` turns a second; so no VM is ahead of another one by more than a turn,
and what it got too much is taken off its next turn. Simulators of many CPUs do the same (lax synchronisation: Miller
and others, "Graphite", HPCA 2010). The machine may be as slow as it likes, and another one beside it: VMs do the same
work beside each other. At a second's end they are stopped (SIGSTOP), and so are those that rest.

*What insight sees.*  When all stand still at a second's end, the agent is asked for its counters, which it reads anew
from the kernel's files and from perf. Its readings are divided by a second of the mix, and not by the clock's.

*What the model counted* by then is read behind the agent's reading, and in front of it, too: until the agent has
looked, the host goes on, and its lines push out those of VMs that stand still. The slower the machine, the more.

*What the host does*, it does on a CPU of its own, and this CPU fills two ways only. On an emulated CPU what the
host does for each second of a mix is a good part of a VM's second; on a server it is hardly anything.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.kernel.cachemodel import counts, switch
from tests.worth.native import Counters, Order
from tests.worth.neighbours import carried, truth
from tests.worth.neighbours.hardware import GUEST
from tests.worth.neighbours.judge import Outcome, Sight, judge
from tests.worth.neighbours.machine import Run, Runner
from tests.worth.neighbours.mixes import Mix
from tests.worth.neighbours.recorded import Recorded, packed
from tests.worth.node import RESCTRL, Node, Worker
from vmqos.telemetry.hardware_events import NAMES

TURNS = 30
"""In which a second is dealt out."""
GLANCE = 0.002
"""Seconds from one look at the VMs' cycles to the next."""
OLD = 1.0
"""Seconds for which the agent tells its last look again."""
SOON = 0.02
"""Seconds until the agent is asked again that told its last look."""
PATIENCE = 240.0
SAMPLE = 3
CPUS = (1, 2, 3)
"""Of VMs; the host has the other one."""
HOST_CPU = 0
HOST_WAYS = 0b11
HOST_GROUP = RESCTRL / "host"
ANY_CPU = 0
MSR = Path("/dev/cpu/0/msr")
WITHIN = 30
"""Seconds behind the onset that are looked at."""
NO_PMU, PMU_OF_THE_L3 = "no pmu", "pmu of the L3"


@dataclass(frozen=True, slots=True)
class Reading:
    """One VM at a second's end, or in front of the first one: all that was counted so far.

    :ivar before: what the model had counted when the agent was asked, and ``after`` when it had answered.
    :ivar seen: what the agent read; what it could not read is 0.
    """

    before: Counters
    seen: Counters
    after: Counters


@dataclass(frozen=True, slots=True)
class Both:
    """One run of a mix.

    :ivar model: what the model of the caches counted: the truth.
    :ivar seen: what the agent read.
    :ivar readings: what both were made of, by VM: one in front of the first second, and one behind each.
    :ivar accesses: that each VM reported.
    :ivar host: cycles that the host's own group took for each second of the mix.
    """

    model: Run
    seen: Run
    readings: Sequence[Sequence[Reading]]
    accesses: Sequence[int]
    host: float


@contextlib.contextmanager
def host_apart() -> Iterator[None]:
    """All that runs by now runs on the host's CPU, and what runs there fills two ways only.

    These are of an administrator's group, which the agent leaves alone.
    """
    HOST_GROUP.mkdir()
    moved: dict[int, set[int]] = {}
    try:
        (HOST_GROUP / "schemata").write_text(f"L3:0={HOST_WAYS:x}\n")
        (HOST_GROUP / "cpus_list").write_text(f"{HOST_CPU}\n")
        for task in (int(path.name) for path in Path("/proc").glob("[0-9]*/task/[0-9]*")):
            # Some threads of the kernel belong to their CPU (EINVAL), and some tasks have ended.
            with contextlib.suppress(OSError):
                before = os.sched_getaffinity(task)
                os.sched_setaffinity(task, {HOST_CPU})
                moved[task] = before
        yield
    finally:
        for task, before in moved.items():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(task, before)
        HOST_GROUP.rmdir()


@dataclass
class Vms:
    """The VMs of a mix, started, and stopped until it is run.

    :ivar mix: with the ways that each VM may fill in fact.
    :ivar runs: what was run so far.
    """

    node: Node
    mix: Mix
    workers: Sequence[Worker]
    rmids: Sequence[int]
    pids: Sequence[int]
    runs: dict[tuple[tuple[int, ...], bool], Both] = field(default_factory=dict)

    def run(self, mix: Mix, absent: Collection[int] = (), planted: bool = True) -> Run:
        """Run it; what was run before is not run again. See :class:`tests.worth.neighbours.machine.Runner`."""
        assert mix == self.mix
        return self.both(absent, planted).model

    def both(self, absent: Collection[int] = (), planted: bool = True) -> Both:
        """What the model counted, and what the agent saw."""
        key = tuple(sorted(absent)), planted
        if key not in self.runs:
            print(f"  running{' without ' + str(key[0]) if absent else '' if planted else ' without harm'}", flush=True)
            self.runs[key] = self._run(frozenset(absent), planted)
        return self.runs[key]

    def _run(self, absent: frozenset[int], planted: bool) -> Both:
        everybody = range(len(self.workers))
        hz = self.mix.hardware.hz
        with switch.on(sample=SAMPLE, l2size=self.mix.hardware.l2_bytes, evictions=1), _meter(self.rmids) as meter:
            lost = self._evicted()
            readings = [[reading] for reading in self._read()]
            # What each VM has still to get, less what it got too much.
            goals = [float(meter.cycles(rmid)) for rmid in self.rmids]
            progress = [worker.progress() for worker in self.workers]
            host = switch.rmid_of(HOST_GROUP)
            of_host = meter.cycles(host)
            for second in range(self.mix.seconds):
                works = {vm: self.mix.work(vm, second, planted) for vm in everybody if vm not in absent}
                at_work = [vm for vm, work in works.items() if work.load.order is not Order.IDLE]
                for turn in range(TURNS):
                    for vm in at_work:
                        goals[vm] += carried.cycles(works[vm]) * hz / TURNS
                        meter.allow(self.rmids[vm], math.ceil(goals[vm]))
                        if turn == 0:
                            _signal(self.pids[vm], signal.SIGCONT)
                    meter.wait({self.rmids[vm]: goals[vm] for vm in at_work})
                for vm in at_work:
                    _signal(self.pids[vm], signal.SIGSTOP)
                for of, reading in zip(readings, self._read(), strict=True):
                    of.append(reading)
            evicted = {pair: lines - lost.get(pair, 0) for pair, lines in self._evicted().items()}
            of_host = meter.cycles(host) - of_host
            accesses = [worker.progress() - before for worker, before in zip(self.workers, progress, strict=True)]
        model = [_by_second([reading.after for reading in of]) for of in readings]
        seen = [_by_second([reading.seen for reading in of]) for of in readings]
        run = Run(model, {pair: lines for pair, lines in evicted.items() if lines})
        return Both(run, Run(seen, {}), readings, accesses, of_host / self.mix.seconds)

    def _read(self) -> list[Reading]:
        before = self._model()
        seen = self._agents(time.time())
        return [Reading(*of) for of in zip(before, seen, self._model(), strict=True)]

    def _model(self) -> list[Counters]:
        return [of_model(switch.counts(ANY_CPU, rmid), self.mix) for rmid in self.rmids]

    def _evicted(self) -> dict[tuple[int, int], int]:
        """By VM; the host is -1."""
        number = int((RESCTRL / "info/L3_MON/num_rmids").read_text())
        host = switch.rmid_of(HOST_GROUP)
        by_rmid = dict(enumerate(self.rmids)) | {-1: host}
        return {
            (one, other): switch.evicted(ANY_CPU, by=by, of=of, rmids=number)
            for one, by in by_rmid.items()
            for other, of in by_rmid.items()
        }

    def _agents(self, after: float) -> list[Counters]:
        """What the agent reads, not before a moment: seconds since 1970."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError, RuntimeError):
                counters = self.node.agent.get("/v1/telemetry")
                events = self.node.agent.get("/v1/telemetry/hardware-events")
                times = counters["taken_at"], events["taken_at"]
                if all(at is not None and at >= after for at in times):
                    return [of_agent(counters, events, worker.uuid) for worker in self.workers]
                # To ask is work, too: it is done once more only.
                oldest = min(at or 0.0 for at in times)
                time.sleep(min(OLD, max(0.0, oldest + OLD - time.time())))
            if time.monotonic() > deadline:
                raise TimeoutError("the agent did not read its counters")
            time.sleep(SOON)


def _by_second(counted: Sequence[Counters]) -> list[Counters]:
    return [now - then for then, now in pairwise(counted)]


@contextlib.contextmanager
def started(node: Node, mix: Mix) -> Iterator[Vms]:
    """Start the VMs of a mix, one after the other, with what their flavors promise; at the end they are gone."""
    workers: list[Worker] = []
    try:
        for which, ways in enumerate(carried.promised(mix)):
            load = carried.rom_load(carried.load_of(mix, which))
            specs = {"hw:cache_ways": str(ways)} if ways else {}
            worker = node.start(f"vm{which}", load, specs, cpus=str(CPUS[which % len(CPUS)]))
            workers.append(worker)
            _signal(worker.vm.pid, signal.SIGSTOP)
        vms = [replace(vm, mask=_mask(node, worker)) for vm, worker in zip(mix.vms, workers, strict=True)]
        pids = [worker.vm.pid for worker in workers]
        yield Vms(node, replace(mix, vms=vms), workers, [node.rmid(worker) for worker in workers], pids)
    finally:
        for worker in workers:
            with contextlib.suppress(OSError):
                _signal(worker.vm.pid, signal.SIGCONT)
        node.remove_all()


def of_model(found: counts.Counts, mix: Mix) -> Counters:
    """What the model counted, in the words of the native library."""
    lines, hardware = found.data + found.fetch, mix.hardware
    cycles = found.instructions + hardware.l3_cycles * lines.l3 + hardware.memory_cycles * lines.memory
    return Counters(
        found.instructions,
        cycles,
        lines.l3 + lines.memory,
        lines.memory,
        found.occupancy,
        found.memory_bytes,
        found.memory_bytes,
        found.writebacks,
        0,
        0,
    )


def of_agent(counters: Mapping[str, Any], events: Mapping[str, Any], uuid: str) -> Counters:
    """What the agent read of a VM; what it could not read is 0."""
    vm = counters["vms"][uuid]
    counted = events["vms"].get(uuid, {"counts": {}})["counts"]
    cycles, instructions, references, misses = (int(counted.get(name) or 0) for name in NAMES)
    occupancy = sum(int(cache["llc_occupancy"] or 0) for cache in vm["caches"].values())
    total = int(vm["totals"]["mbm_total_bytes"] or 0)
    return Counters(instructions, cycles, references, misses, occupancy, total, total, 0, 0, 0)


def _mask(node: Node, worker: Worker) -> int:
    """The ways that it may fill, as the kernel has them."""
    group = node.group(worker)
    schemata = (group / "schemata" if (group / "schemata").exists() else group.parents[1] / "schemata").read_text()
    line = next(line for line in schemata.split() if line.startswith("L3:"))
    return int(line.partition("0=")[2].partition(";")[0], 16)


@dataclass(frozen=True, slots=True)
class Meter:
    """The cycles that CPUs spend under an RMID, since boot.

    :ivar descriptor: of a CPU's registers.
    """

    descriptor: int

    def cycles(self, rmid: int) -> int:
        """How many they were so far."""
        l3, memory = (sum(self._number(rmid, 4 * kind + served) for kind in range(3)) for served in (1, 2))
        return self._number(rmid, 3) + GUEST.l3_cycles * l3 + GUEST.memory_cycles * memory

    def allow(self, rmid: int, cycles: int) -> None:
        """Have programs stand still once they were so many; 0: have them go on."""
        os.pwrite(self.descriptor, cycles.to_bytes(8, "little"), switch.MOST_CYCLES + rmid)

    def wait(self, goals: Mapping[int, float]) -> None:
        """Wait until each has had its cycles.

        :param goals: by RMID.
        """
        running = dict(goals)
        deadline = time.monotonic() + PATIENCE
        while running := {rmid: goal for rmid, goal in running.items() if self.cycles(rmid) < goal}:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {PATIENCE:.0f} s: {running}")
            time.sleep(GLANCE)

    def _number(self, rmid: int, which: int) -> int:
        return int.from_bytes(os.pread(self.descriptor, 8, switch.COUNTS + counts.NUMBERS * rmid + which), "little")


@contextlib.contextmanager
def _meter(rmids: Collection[int]) -> Iterator[Meter]:
    """A meter; at the end these RMIDs may have any number of cycles."""
    descriptor = os.open(MSR, os.O_RDWR)
    meter = Meter(descriptor)
    try:
        yield meter
    finally:
        for rmid in rmids:
            meter.allow(rmid, 0)
        os.close(descriptor)


def _signal(pid: int, number: signal.Signals) -> None:
    os.kill(pid, number)


SIGHTS = {NO_PMU: Sight(False, False), PMU_OF_THE_L3: Sight(True, False)}
"""The agent of today does not know what memory can give. On AMD's processors it judges without a PMU, for misses of the
L2 are not those of the L3; with a PMU is what it would do where perf counts the L3's."""


def outcome(vms: Vms) -> dict[str, Any]:
    """Run a mix with its culprit and without what it was planted for, and hold what insight says against that."""
    mix, whole = vms.mix, vms.both()
    found = judged(mix, whole.model, whole.seen, vms.run)
    return {
        "masks": [vm.mask for vm in mix.vms],
        **found,
        "lost": [
            [
                sum(lines for (by, of), lines in whole.model.evicted.items() if of == vm and by in others)
                for others in ({culprit_of(mix)}, {vm}, {-1})
            ]
            for vm in range(len(mix.vms))
        ],
        "instructions": [
            round(sum(one.instructions for one in of) / accesses) if accesses else 0
            for of, accesses in zip(whole.model.vms, whole.accesses, strict=True)
        ],
        "host": round(whole.host / mix.hardware.hz, 3),
        "cycles": [round(sum(one.cycles for one in of) / mix.hardware.hz, 2) for of in whole.model.vms],
        "counted": [round(sum(one.cycles for one in of) / mix.hardware.hz, 2) for of in whole.seen.vms],
        # Behind the judgement: it has the runs, too, that an accusation was held against.
        "recorded": packed(Recorded({key: both.model for key, both in vms.runs.items()}, whole.seen)),
    }


def judged(mix: Mix, whole: Run, seen: Run, runner: Runner) -> dict[str, Any]:
    """What the culprit does to each VM, and what insight says of it.

    :param whole: what the model counted; ``seen`` is what the agent read.
    :param runner: has the same mix without what it was planted for, and without a VM that is accused.
    """
    done = {} if mix.planted is None else truth.done_by_planted(mix, whole, runner(mix, planted=False), WITHIN)
    harm = truth.harmed(done)
    said = {}
    for name, sight in SIGHTS.items():
        shown = with_the_l3s_events(seen, whole) if name == PMU_OF_THE_L3 else seen
        said[name] = told(judge(mix, whole, harm, sight, seen=shown, runner=runner))
    return {
        "done": {str(vm): [round(one.slower, 3), sorted(one.causes)] for vm, one in done.items()},
        "said": said,
    }


def told(said: Outcome) -> dict[str, Any]:
    """As JSON has it."""
    return {"named": said.named, "accusations": [asdict(one) for one in said.accusations]}


def culprit_of(mix: Mix) -> int:
    """Which VM it is; a number of none where there is none."""
    return mix.planted.vm if mix.planted is not None else len(mix.vms)


def with_the_l3s_events(seen: Run, model: Run) -> Run:
    """What the agent read, with references and misses of the L3, which perf of AMD's does not tell, from the model."""
    return Run(
        [
            [
                replace(read, llc_references=counted.llc_references, llc_misses=counted.llc_misses)
                for read, counted in zip(of_seen, of_model_, strict=True)
            ]
            for of_seen, of_model_ in zip(seen.vms, model.vms, strict=True)
        ],
        {},
    )
