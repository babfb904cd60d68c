# SPDX-License-Identifier: Apache-2.0
"""One sweep over every counter of 16, 64 and 200 VMs, against C programs that only read the same files.

The C programs make nothing of what they read: one keeps its descriptors and calls pread, the other one opens, reads and
closes every file. The sweep lists the groups, reads their masks, and makes a number or a reason of each counter.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.support import Figure, compiled, sleeping, spread
from vmqos.agent.telemetry import Telemetry
from vmqos.resctrl import exceptions, groups, info, monitoring
from vmqos.resctrl.filesystem import Filesystem
from vmqos.telemetry import Snapshot, Sweeper

SIZES = (16, 64, 200)
TURNS, ROUNDS = 5, 6
CLASS = "vmqos.shared-ways2"
LIMBO = 120.0
"""Seconds that freed RMIDs may stay in limbo."""
WATCHED = 20.0
POLLS = 5


@dataclass(frozen=True, slots=True)
class Peers:
    """Programs of others to compare with; ``None`` where there is none.

    :ivar goresctrl: is called with the root of resctrl and a number of rounds. It reads, by goresctrl's
        ``GetMonData``, the counters of every monitoring group in each round, and prints the nanoseconds of each.
    :ivar pqos: Intel's ``pqos``.
    """

    goresctrl: str | None = None
    pqos: str | None = None


NO_PEERS = Peers()


def run(resctrl: str, peers: Peers = NO_PEERS) -> Iterator[Figure | str]:
    """Sweeps of growing hosts, then what it costs to watch the largest one."""
    filesystem = Filesystem(resctrl)
    found = info.read_capabilities(filesystem).monitoring
    rmids = found.num_rmids if found is not None else 0
    largest = None
    for count in SIZES:
        # The default group and the class have one, too.
        if count + 2 > rmids:
            yield f"a sweep over {count} VMs: left out, this machine has {rmids} RMIDs"
            continue
        largest = count
        with _host(filesystem, count) as files:
            yield from _sweeps(filesystem, count, files)
            if count == SIZES[-1]:
                yield from _goresctrl(resctrl, count, peers.goresctrl)
                yield _watching(resctrl, count)
    if largest is not None:
        yield from _pqos(filesystem, largest, peers.pqos)


def _sweeps(filesystem: Filesystem, count: int, files: list[str]) -> Iterator[Figure]:
    kept, each, sweep, looked, reopened = [], [], [], [], []
    with (
        compiled("read_counters") as program,
        Sweeper(filesystem.root) as sweeper,
        Sweeper(filesystem.root, keep_open=False) as opener,
    ):
        if len(sweeper.sweep().vms) != count:
            raise AssertionError(f"the sweep found {len(sweeper.sweep().vms)} of {count} VMs")
        opener.sweep()
        for _ in range(TURNS):
            kept += _c_program(program, "kept", files)
            each += _c_program(program, "each", files)
            for _ in range(ROUNDS):
                sweep.append(_timed(sweeper, look=False))
                looked.append(_timed(sweeper, look=True))
                reopened.append(_timed(opener, look=False))
    what = f"{count} VMs, {len(files)} counters"
    least, opening = statistics.median(kept), statistics.median(each)
    yield Figure(
        f"a sweep over {what}, times C with pread",
        statistics.median(sweep) / least,
        "x",
        1.4,
        f"vmqos {spread(sweep, 'ms')}; C {spread(kept, 'ms')}",
    )
    yield Figure(
        "the same and a look at every value, times C with pread",
        statistics.median(looked) / least,
        "x",
        None,
        f"vmqos {spread(looked, 'ms')}",
    )
    yield Figure(
        "the same sweep, times C with open, read and close",
        statistics.median(sweep) / opening,
        "x",
        None,
        f"C {spread(each, 'ms')}",
    )
    yield Figure(
        "a sweep that keeps nothing open, times the same",
        statistics.median(reopened) / opening,
        "x",
        None,
        f"vmqos {spread(reopened, 'ms')}",
    )


def _timed(sweeper: Sweeper, look: bool) -> float:
    before = time.perf_counter()
    snapshot = sweeper.sweep()
    if look:
        _look_at(snapshot)
    return (time.perf_counter() - before) * 1e3


def _look_at(snapshot: Snapshot) -> int:
    """Ask for every value once, as the exposition does."""
    seen = 0
    for vm in snapshot.vms.values():
        for by_event in (*vm.caches.values(), vm.totals):
            seen += sum(reading.value is not None for reading in by_event.values())
    return seen


def _c_program(program: str, mode: str, files: list[str]) -> list[float]:
    _allow_open_files()
    lines = "".join(f"{file}\n" for file in files)
    done = subprocess.run([program, mode, str(ROUNDS)], input=lines, capture_output=True, text=True, check=True)
    return [int(line) / 1e6 for line in done.stdout.splitlines()]


def _watching(resctrl: str, count: int) -> Figure:
    """What the agent's thread costs that reads the counters every second."""
    telemetry = Telemetry(resctrl, 1.0, 600.0)
    telemetry.start()
    time.sleep(2.0)
    began, before = time.monotonic(), time.process_time()
    time.sleep(WATCHED)
    used, seconds = time.process_time() - before, time.monotonic() - began
    telemetry.stop()
    detail = f"{used * 1e3:.0f} ms in {seconds:.1f} s; the loop itself is another benchmark (audit)"
    return Figure(f"reading {count} VMs every second, of one CPU", 100 * used / seconds, "%", None, detail)


def _goresctrl(resctrl: str, count: int, program: str | None) -> Iterator[Figure | str]:
    if program is None:
        yield "goresctrl: left out, no program was given (--goresctrl)"
        return
    done = subprocess.run([program, resctrl, str(ROUNDS)], capture_output=True, text=True, check=True)
    theirs = [int(line) / 1e6 for line in done.stdout.splitlines()]
    with Sweeper(resctrl) as sweeper:
        sweeper.sweep()
        ours = [_timed(sweeper, look=True) for _ in range(ROUNDS)]
    ratio = statistics.median(ours) / statistics.median(theirs)
    yield Figure(f"a sweep over {count} VMs, times goresctrl", ratio, "x", 1 / 7, f"goresctrl {spread(theirs, 'ms')}")


def _pqos(filesystem: Filesystem, count: int, program: str | None) -> Iterator[Figure | str]:
    """pqos makes monitoring groups of its own, one for each process that it is to watch."""
    if program is None:
        yield "pqos: left out, no program was given (--pqos)"
        return
    with _host(filesystem, count), Sweeper(filesystem.root) as sweeper:
        sweeper.sweep()
        before = time.process_time()
        for _ in range(POLLS):
            _timed(sweeper, look=True)
        ours = (time.process_time() - before) / POLLS * 1e3
    with sleeping(count, 1) as processes:
        pids = [tids[0] for tids in processes]
        try:
            short, long = (_cpu_of_pqos(program, pids, polls) for polls in (1, 1 + POLLS))
        except subprocess.CalledProcessError as error:
            said = (error.stdout or b"").decode(errors="replace").strip().splitlines()
            yield f"pqos: left out, it ended with {error.returncode}: {said[0] if said else 'without a word'}"
            return
    theirs = (long - short) / POLLS * 1e3
    detail = f"CPU of one round: vmqos {ours:.1f} ms, pqos {theirs:.1f} ms"
    yield Figure(f"a sweep over {count} VMs, CPU, times pqos", ours / theirs, "x", 1 / 20, detail)


def _cpu_of_pqos(program: str, pids: list[int], polls: int) -> float:
    """Seconds of CPU that it took for so many polls, its beginning and end included."""
    watch = [argument for pid in pids for argument in ("-p", f"all:{pid}")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [program, "-I", *watch, "-i", "10", "-t", str(polls)]
    subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
    assert os.sysconf("SC_OPEN_MAX") > 2048, "too few files may be open: ulimit -n 65536"
