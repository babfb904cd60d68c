# SPDX-License-Identifier: Apache-2.0
"""What all telemetry takes: 200 VMs of 20 threads each, one sweep a second, a page that is open, and Prometheus.

Agent and gateway are the real programs, on the simulator and the private libvirtd, with the options as shipped but for
the interval. The VMs are paused, and the simulator has every counter move all the time. Where the counters' files are
read, a C program reads the same files at the same pace, and counts the same tasks: what it takes is the kernel's. What
the agent's passes take is measured by an agent without telemetry, and is no part of the cost.

The agent remembers a day of the VMs from its start on, and it is the kind that takes most memory. As where they are
installed, the modules of both are compiled before they start: to compile them takes memory that they would keep.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt

from tests.benchmarks import noisy_day, resident, rivals
from tests.benchmarks.figures import Figure
from tests.benchmarks.host import Host, host, standing
from tools.lab import processes, program, vms
from tools.lab.agent import Agent
from tools.lab.program import Program
from tools.lab.unix_http import UnixConnection

VMS = 200
THREADS = 20
VCPUS = 16
"""QEMU has four threads beside these."""
AGENT = "tests.benchmarks.counting_agent"
INTERVAL = 1.0
SETTLED = 10.0
"""Seconds in which what follows from the agent's start comes to an end."""
DURATION = 60.0
"""Seconds of each agent: one full audit, and one end of a minute."""
LOOK_INTERVAL = 2.0
"""Seconds from the end of one look of the page to the next (``PAUSE`` in ``main.js``)."""
NEIGHBOURS_INTERVAL = 10.0
"""Seconds between two questions of the page about neighbours (``PAUSE`` in ``slowed.js``)."""
SCRAPE_INTERVAL = 15.0
ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
"""What Prometheus asks for."""
STAYING = ("vms", "caches", "capabilities")
"""What the page asks below ``/v1/`` when the agent's health names another revision, and every minute (``known.js``)."""
STAYS = 60.0
PACE = 0.95
"""The share of the sweeps that were due, without which nothing is told."""
WITHOUT = {"telemetry": {"interval": 0.0, "hardware_events": False, "neighbours_interval": 0.0}}
GOAL = 10.0
"""Milliseconds of CPU time a second."""
MEMORY_GOAL = 110.0
TICK = 1000 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Used:
    """CPU time, in milliseconds.

    :ivar user: outside of the kernel.
    :ivar system: in it.
    """

    user: float
    system: float

    @property
    def both(self) -> float:
        """All of it."""
        return self.user + self.system

    def since(self, earlier: Used, seconds: float) -> Used:
        """What was used since then, a second."""
        return Used((self.user - earlier.user) / seconds, (self.system - earlier.system) / seconds)

    def __str__(self) -> str:
        return f"user {self.user:.1f}, system {self.system:.1f}"


def run() -> Iterator[Figure]:
    """Start the VMs, measure an agent with everything, and then one without telemetry."""
    # The C program opens as many files as the agent.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    options = {"telemetry": {"interval": INTERVAL}, "gateway": {}}
    with _compiled(), host(options, "sapphire-rapids", "tests.benchmarks.moving_simulator", _launch) as ours:
        with contextlib.closing(ours.daemon.connect()) as connection, ThreadPoolExecutor(2) as pool:

            def start(number: int) -> str:
                domain = vms.define(connection, standing(number, VCPUS))
                domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
                return str(domain.UUIDString())

            # There is no class for an eighth one that has ways of its own.
            uuids = list(pool.map(start, range(1, VMS + 1)))
        noisy_day.write(ours.agent.socket.parent / "minutes", uuids)
        ours.agent.start()
        _settle(ours.agent)
        agent, gateway, calls, memory, detail = _with_everything(ours)
        title = f"all telemetry, {VMS} VMs"
        yield Figure(f"{title}: the agent", agent.both, "ms/s", None, f"{agent}; {detail}")
        yield Figure(f"{title}: the gateway", gateway.both, "ms/s", None, str(gateway))
        yield Figure("the same reads in C", calls, "ms/s", None, "what it takes the kernel")
        told = (
            f"pages of both counted once; the agent's VmRSS is {memory[0]:.1f} MiB with a noisy day, the gateway's "
            f"{memory[1]:.1f} MiB"
        )
        yield Figure(f"{title}: resident memory of both", memory[2], "MiB", MEMORY_GOAL, told)
        ours.agent.stop()
        ours.agent.configure(WITHOUT)
        ours.agent.start()
        _settle(ours.agent)
        passes = _alone(ours.agent)
        yield Figure("the passes of an agent without telemetry", passes.both, "ms/s", None, str(passes))
        cost = agent.both + gateway.both - passes.both - calls
        told = (
            f"agent and gateway without the passes and the reads in C, {cost / calls:.2f} times these reads; "
            f"with the passes {cost + passes.both:.1f} ms/s"
        )
        yield Figure(f"{title}, beyond the kernel's own work", cost, "ms/s", GOAL, told)


@contextlib.contextmanager
def _compiled() -> Iterator[None]:
    """Have what agent and gateway import be compiled, for all processes that are started meanwhile."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["PYTHONPYCACHEPREFIX"] = directory
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            subprocess.run([sys.executable, "-c", f"import {AGENT}, vmqos.gateway.main"], check=True)
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _launch(module: str, arguments: Sequence[str], log: Path) -> Program:
    return program.launch(AGENT if module == "vmqos.agent.main" else module, arguments, log)


def _settle(agent: Agent) -> None:
    """Wait until every VM is where it belongs and counted, and for what follows from that."""

    def settled() -> bool:
        found = agent.get("/v1/vms", 60.0)["vms"]
        return len(found) == VMS and all(vm["monitoring_group"] or vm["state"] == "kept" for vm in found)

    processes.wait_until(settled, "all VMs being counted", 300.0, 1.0)
    time.sleep(SETTLED)


def _with_everything(ours: Host) -> tuple[Used, Used, float, tuple[float, float, float], str]:
    """What agent and gateway take a second, and the C program; their memory; and what was read and asked."""
    agent, tids = ours.agent, _tids(ours.agent)
    files = _counters(ours.simulator.root)
    queue = [*_listing(ours.simulator.root), *rivals.keeping(files), *rivals.counting(tids)]
    gateway, ends = agent.gateway.pid, threading.Event()
    assert agent.pid is not None and gateway is not None
    looks, scrapes = _Reader(agent.gateway.socket), _Scraper(agent.gateway.socket)
    with rivals.system_calls(queue) as calls, ThreadPoolExecutor(2) as pool:
        calls.go(0)
        begun, before = time.monotonic(), (_used(agent.pid), _used(gateway))
        asking = [pool.submit(_repeat, what, ends) for what in (looks, scrapes)]
        try:
            spent, due = 0.0, begun
            while due < begun + DURATION:
                time.sleep(max(0.0, due - time.monotonic()))
                spent += calls.go(0).cpu
                due += INTERVAL
            time.sleep(max(0.0, due - time.monotonic()))
            took, after = time.monotonic() - begun, (_used(agent.pid), _used(gateway))
            memory = resident.of(agent.pid), resident.of(gateway), resident.together((agent.pid, gateway))
        finally:
            ends.set()
        for one in asking:
            one.result()
    sweeps = len(agent.get(f"/v1/telemetry/history?seconds={took}&vm=none", 60.0)["times"])
    if sweeps < PACE * took / INTERVAL:
        raise AssertionError(f"this machine has too much other work: there were {sweeps} sweeps in {took:.0f} s")
    found = agent.get("/v1/telemetry/hardware-events", 60.0)
    counted = sum(vm["source"] == "perf" for vm in found["vms"].values())
    detail = (
        f"{sweeps} sweeps of {len(files)} counters, {counted} VMs counted by {len(tids)} tasks, "
        f"{looks.count} looks of the page, {scrapes.count} scrapes, in {took:.0f} s"
    )
    return after[0].since(before[0], took), after[1].since(before[1], took), spent / took, memory, detail


def _alone(agent: Agent) -> Used:
    assert agent.pid is not None
    begun, before = time.monotonic(), _used(agent.pid)
    time.sleep(DURATION)
    return _used(agent.pid).since(before, time.monotonic() - begun)


class _Reader:
    """A page that somebody looks at: the same questions in the same order (``main.js``), over one connection."""

    def __init__(self, gateway: Path) -> None:
        self._connection = UnixConnection(gateway, 30.0)
        self._neighbours_due = self._heard = 0.0
        self._revision = self._last_event = self._epoch = self._basis = ""
        self._event = 0
        self.count = 0
        _ask(self._connection, "/v1/telemetry/history?seconds=600&series=llc_occupancy&series=total")

    def __call__(self) -> float:
        """One look; seconds until the next one."""
        now = time.monotonic()
        health = json.loads(_ask(self._connection, "/v1/health"))
        if health["revision"] != self._revision or now - self._heard > STAYS:
            for question in STAYING:
                _ask(self._connection, f"/v1/{question}")
            self._revision, self._heard = health["revision"], now
        if health["last_event"] != self._last_event:
            told = json.loads(_ask(self._connection, f"/v1/events?after={self._event}&epoch={self._epoch}"))
            self._epoch, self._event, self._last_event = told["epoch"], told["last"], health["last_event"]
        if now >= self._neighbours_due:
            _ask(self._connection, "/v1/neighbours")
            self._neighbours_due = now + NEIGHBOURS_INTERVAL
        looks = json.loads(_ask(self._connection, f"/v1/telemetry/columns?basis={self._basis}"))
        if looks["counters"]["apart"]:
            raise AssertionError("the counters are not told as columns")
        self._basis = looks["basis"]
        self.count += 1
        return LOOK_INTERVAL


class _Scraper:
    """Prometheus."""

    def __init__(self, gateway: Path) -> None:
        self._connection = UnixConnection(gateway, 30.0)
        self.count = 0

    def __call__(self) -> float:
        """One scrape; seconds until the next one."""
        begun = time.monotonic()
        # The gateway closes a connection that has been idle for ten seconds.
        self._connection.close()
        if b"vmqos_vm_memory_traffic_bytes_total" not in _ask(self._connection, "/metrics", {"Accept": ACCEPT}):
            raise AssertionError("the VMs are not in the metrics")
        self.count += 1
        return begun + SCRAPE_INTERVAL - time.monotonic()


def _ask(connection: http.client.HTTPConnection, path: str, headers: dict[str, str] | None = None) -> bytes:
    connection.request("GET", path, headers=headers or {})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise AssertionError(f"GET {path}: {answer.status} {body[:200]!r}")
    return body


def _repeat(what: Callable[[], float], ends: threading.Event) -> None:
    while not ends.wait(what()):
        pass


def _tids(agent: Agent) -> list[int]:
    """The threads of all VMs."""
    told: dict[str, Any] = agent.get("/v1/vms", 60.0)
    tids = [int(name) for vm in told["vms"] for name in os.listdir(f"/proc/{vm['pid']}/task")]
    if len(tids) != VMS * THREADS:
        raise AssertionError(f"{VMS} VMs have {len(tids)} threads, not {THREADS} each")
    return tids


def _listing(root: Path) -> list[str]:
    """The calls that a sweep makes before it reads counters: it lists the groups, and reads the masks."""
    controls = [root, *(entry for entry in root.iterdir() if (entry / "schemata").exists())]
    listed = [f"list {root}", *(f"list {control / 'mon_groups'}" for control in controls), f"list {root / 'mon_data'}"]
    domains = [f"stat {domain}" for domain in (root / "mon_data").iterdir()]
    return [f"stat {root}", *listed, *domains, *rivals.keeping(str(control / "schemata") for control in controls)]


def _counters(root: Path) -> list[str]:
    """Every group's counters."""
    return [str(path) for path in root.glob("**/mon_data/*/*")]


def _used(pid: int) -> Used:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Used(int(fields[11]) * TICK, int(fields[12]) * TICK)
