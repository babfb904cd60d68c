# SPDX-License-Identifier: Apache-2.0
"""What the agent costs a VM's start, in good order and hindered in every way: libvirt waits for nobody.

Each start is beside some standing VMs, and each way has its turn in each round, so that whatever else goes on disturbs
all alike. The first way is a host without an agent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from tests.benchmarks.figures import Figure, percentile, spread
from tests.benchmarks.host import Host, host, standing
from tools.lab import vms

STANDING = 20
ROUNDS = 5
STARTS = 4
"""In each round, by each way."""
LIMIT = 50.0
"""Milliseconds that a start may take longer than without the agent."""
OWN = vms.Flavor("hindered", {"hw:cache_ways": "2"})


def run() -> Iterator[Figure]:
    """Start VMs in each way."""
    took: dict[str, list[float]] = {name: [] for name in WAYS}
    with host() as ours, contextlib.closing(ours.daemon.connect()) as connection:
        for number in range(STANDING):
            vms.start(connection, standing(number))
        for turn in range(ROUNDS):
            for name, way in WAYS.items():
                with way(ours):
                    took[name] += [_start(ours, turn, number) for number in range(STARTS)]
    without = took.pop(NOBODY)
    yield Figure(f"a start, {NOBODY}: p99", percentile(without, 0.99), "ms", None, spread(without, "ms"))
    for name, samples in took.items():
        longer = statistics.median(samples) - statistics.median(without)
        yield Figure(f"a start, {name}: longer by, median", longer, "ms", LIMIT, spread(samples, "ms"))


def _start(ours: Host, turn: int, number: int) -> float:
    """Milliseconds that libvirt takes to start a VM."""
    vm = vms.Vm(f"hindered-{turn}-{number}", OWN, vcpus=2)
    connection = ours.daemon.connection()
    domain = vms.define(connection, vm)
    began = time.monotonic()
    domain.create()
    took = (time.monotonic() - began) * 1e3
    vms.remove(connection, vm.uuid)
    return took


@contextlib.contextmanager
def _nobody(ours: Host) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _well(ours: Host) -> Iterator[None]:
    ours.agent.start()
    try:
        yield
    finally:
        ours.agent.kill()


@contextlib.contextmanager
def _stopped(ours: Host) -> Iterator[None]:
    with _well(ours):
        pid = ours.agent.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        yield


@contextlib.contextmanager
def _with(ours: Host, option: str, value: object) -> Iterator[None]:
    """With another value of an option of libvirt's section."""
    before = {"uri": ours.daemon.uri, "run_dir": ours.daemon.run_dir}
    ours.agent.configure({"libvirt": {option: value}})
    try:
        with _well(ours):
            yield
    finally:
        ours.agent.configure({"libvirt": before})


@contextlib.contextmanager
def _locked(ours: Host) -> Iterator[None]:
    with _well(ours):
        command = ["flock", "--exclusive", str(ours.simulator.root), "sh", "-c", "echo held; exec cat"]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert holder.stdout is not None and holder.stdin is not None
        try:
            holder.stdout.readline()
            yield
        finally:
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()


@contextlib.contextmanager
def _flooded(ours: Host) -> Iterator[None]:
    """Other files of the run directory change all the time, and say nonsense."""
    ends = threading.Event()

    def write() -> None:
        number = 0
        while not ends.wait(0.005):
            number += 1
            path = ours.daemon.run_dir / f"nonsense-{number % 50}.xml"
            path.with_suffix(".new").write_bytes(b"<domstatus state='paused' reason='starting up' pid='1'>" * 1000)
            path.with_suffix(".new").rename(path)

    with _well(ours):
        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()
            for path in ours.daemon.run_dir.glob("nonsense-*"):
                path.unlink()


NOBODY = "no agent"
WAYS: dict[str, Callable[[Host], AbstractContextManager[None]]] = {
    NOBODY: _nobody,
    "the agent well": _well,
    "the agent stopped by SIGSTOP": _stopped,
    "libvirt's socket gone": lambda ours: _with(ours, "uri", "qemu+unix:///system?socket=/nowhere"),
    "libvirt's run directory gone": lambda ours: _with(ours, "run_dir", "/nowhere"),
    "resctrl locked by another program": _locked,
    "200 nonsense status files a second": _flooded,
}
