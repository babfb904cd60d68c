# SPDX-License-Identifier: Apache-2.0
"""One sweep over every counter of 16, 64 and 200 VMs, beside C programs that only read the same files, and peers.

The C programs make nothing of what they read. The sweep lists the groups, reads their masks, and makes a number or a
reason of each counter; the second figure includes a look at every value.

goresctrl is a library; the program in ``goresctrl/`` reads the counters of every monitoring group by it
(``GetMonData``). It looks for the groups once, at its start, while a sweep of ours lists them each time.
"""

from __future__ import annotations

import contextlib
import resource
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from tests.benchmarks import rivals
from tests.benchmarks.arena import GORESCTRL, LIMIT, OURS, PQOS, Arena
from tests.benchmarks.contest import Side, compare
from tests.benchmarks.figures import Comparison, Cost, Effort, Figure, timed
from tests.benchmarks.programs import sleeping
from vmqos.agent.sample.sampler import Telemetry
from vmqos.resctrl import exceptions, groups, info, monitoring
from vmqos.resctrl.filesystem import Filesystem
from vmqos.telemetry import Snapshot, Sweeper

CLASS = "vmqos.shared-ways2"
OPENING = "open, read, close in C"
LOOKING = "with a look at each value"
LIMBO = 120.0
"""Seconds that freed RMIDs may stay in limbo."""
WATCHED = 20.0
PQOS_SECONDS = 20
PQOS_EVENTS = ("llc", "mbt", "mbl")


def run(arena: Arena, effort: Effort) -> Iterator[Comparison | Figure | str]:
    """Sweeps of growing hosts, then what it costs to watch the largest one."""
    filesystem = arena.filesystem
    found = info.read_capabilities(filesystem).monitoring
    rmids = found.num_rmids if found is not None else 0
    taken = 2 + len(arena.counters)
    _allow_open_files()
    for count in sorted({min(16, effort.vms), min(64, effort.vms), effort.vms}):
        if count + taken > rmids:
            yield f"a sweep over {count} VMs: left out, this machine has {rmids} RMIDs"
            continue
        with _host(filesystem, count) as files, Sweeper(filesystem.root) as sweeper:
            if len(sweeper.sweep().vms) != count:
                raise AssertionError(f"the sweep found {len(sweeper.sweep().vms)} of {count} VMs")
            yield _sweep(arena, effort, sweeper, f"a sweep over {count} VMs, {len(files)} counters", files)
            if count == effort.vms:
                yield from _goresctrl(arena, effort, sweeper, files)
                yield _watching(arena, count)
                looked = Side(LOOKING, lambda: timed(lambda: _look_at(sweeper.sweep())), arena.counters.get(OURS))
                ours = compare("", [arena.ours(sweeper.sweep), looked], effort).costs
        if count == effort.vms:
            yield from _pqos(arena, ours, count, rmids - taken)


def _sweep(arena: Arena, effort: Effort, sweeper: Sweeper, name: str, files: list[str]) -> Comparison:
    with (
        rivals.system_calls(rivals.keeping(files), rivals.reading(files)) as calls,
        Sweeper(arena.filesystem.root, keep_open=False) as opener,
    ):
        opener.sweep()
        ours = arena.counters.get(OURS)
        return compare(
            name,
            [
                arena.ours(sweeper.sweep),
                arena.limit(calls),
                Side(OPENING, lambda: calls.go(1), arena.counters.get(LIMIT), calls.rest),
                Side(LOOKING, lambda: timed(lambda: _look_at(sweeper.sweep())), ours),
                Side("keeping nothing open", lambda: timed(opener.sweep), ours),
            ],
            effort,
            goal=1.4,
        )


def _look_at(snapshot: Snapshot) -> int:
    """Ask for every value once, as the exposition does."""
    seen = 0
    for vm in snapshot.vms.values():
        for by_event in (*vm.caches.values(), vm.totals):
            seen += sum(reading.value is not None for reading in by_event.values())
    return seen


def _watching(arena: Arena, count: int) -> Figure:
    """What the agent's thread costs that reads the counters every second, and makes rates and their history of them."""
    telemetry = Telemetry(arena.filesystem.root, 1.0, 600.0)
    telemetry.start()
    time.sleep(2.0)
    counter = arena.counters.get(OURS)
    counted = counter.read() if counter else 0
    began, before = time.monotonic(), time.process_time()
    time.sleep(WATCHED)
    used, seconds = time.process_time() - before, time.monotonic() - began
    executed = (counter.read() - counted) / seconds / 1e6 if counter else 0.0
    telemetry.stop()
    detail = f"{used * 1e3:.0f} ms in {seconds:.1f} s"
    if counter:
        detail += f"; {executed:.1f} million instructions a second"
    return Figure(
        f"reading {count} VMs every second, of one CPU",
        100 * used / seconds,
        "%",
        None,
        f"{detail}; the loop itself is another benchmark (audit)",
    )


def _goresctrl(arena: Arena, effort: Effort, sweeper: Sweeper, files: list[str]) -> Iterator[Comparison | str]:
    if arena.goresctrl is None:
        yield "goresctrl: left out, its program is not there (it takes Go to build it)"
        return
    counter = arena.counters.get(GORESCTRL)
    with rivals.goresctrl(arena.goresctrl, counter) as (theirs, (vms, values)):
        if values != len(files):
            raise AssertionError(f"goresctrl found {values} of {len(files)} counters in {vms} groups")
        yield compare(
            f"the same by {GORESCTRL}, each with a look at each value",
            [
                arena.ours(lambda: _look_at(sweeper.sweep())),
                Side(GORESCTRL, lambda: theirs.go(0), counter, theirs.rest),
            ],
            effort,
            goal=1 / 7,
        )


def _pqos(arena: Arena, ours: Mapping[str, Cost], count: int, free: int) -> Iterator[Comparison | str]:
    """pqos makes monitoring groups of its own, one for each process; a round is what one more second takes it."""
    if arena.pqos is None or free < count:
        why = f"it would take {count} of {free} RMIDs" if arena.pqos else "not installed, or no kernel's resctrl"
        yield f"pqos: left out, {why}"
        return
    with rivals.groups_of_pqos(arena.filesystem, arena.pqos), sleeping(count, 1) as processes:
        theirs = _watch_by_pqos(arena.pqos, [tids[0] for tids in processes])
    yield Comparison(
        f"one more round over {count} VMs",
        {OURS: ours[OURS], PQOS: theirs, LOOKING: ours[LOOKING]},
        1 / 20,
        remark="pqos waits a second between two rounds, and prints each value: look at its CPU time and instructions",
    )


def _watch_by_pqos(pqos: rivals.Pqos, pids: Sequence[int]) -> Cost:
    """Have pqos watch processes as soon as there are RMIDs for all: it does not wait for those in limbo itself."""
    watch = [argument for pid in pids for argument in ("-p", ";".join(f"{event}:{pid}" for event in PQOS_EVENTS))]
    deadline = time.monotonic() + LIMBO
    while True:
        try:
            return pqos.watch(*watch, seconds=PQOS_SECONDS)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(5.0)


@contextlib.contextmanager
def _host(filesystem: Filesystem, count: int) -> Iterator[list[str]]:
    """That many VMs, half of them in a class; the paths of all their counters."""
    _patiently(partial(groups.create, filesystem, CLASS))
    made = []
    try:
        for number in range(count):
            control = CLASS if number % 2 else ""
            name = f"vmqos.{uuid.UUID(int=number + 1)}"
            _patiently(partial(groups.create_monitoring_group, filesystem, control, name))
            made.append((control, name))
        counters = monitoring.read_counters(filesystem)
        yield [
            filesystem.path(groups.monitoring_directory(control, name), found.path, event)
            for control, name in made
            for found in counters
            if found.source.node is None
            for event in found.events
        ]
    finally:
        for control, name in made:
            groups.remove_monitoring_group(filesystem, control, name)
        groups.remove(filesystem, CLASS)


def _patiently(make: Callable[[], None]) -> None:
    """Make a group, once an RMID is out of limbo."""
    deadline = time.monotonic() + LIMBO
    while True:
        try:
            make()
            return
        except exceptions.RmidsInLimbo:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _allow_open_files() -> None:
    """The C program keeps a descriptor for each counter, as the sweep does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
