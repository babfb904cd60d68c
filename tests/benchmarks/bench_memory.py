# SPDX-License-Identifier: Apache-2.0
"""What the agent and its gateway take with many VMs on the host; these are paused, which makes no difference to it.

It stands on the private libvirtd and the simulator.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import libvirt

from tests.benchmarks import resident
from tests.benchmarks.figures import Figure
from tests.benchmarks.host import host, standing
from tests.functional.telemetry.scraped import scrape
from tools.lab import processes, vms
from tools.lab.agent import Agent

VMS = 200
PASSES = 10
SCRAPES = 20
ROUNDS = 100
PAUSE = 1.1


def run() -> Iterator[Figure]:
    """Start the VMs, let the agent settle, do full audits, and look."""
    with host({"agent": {"full_audit_interval": 2.0}}) as ours, contextlib.closing(ours.daemon.connect()) as connection:
        agent = ours.agent
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda number: _start_paused(connection, number), range(VMS)))
        agent.start()
        processes.wait_until(lambda: len(agent.get("/v1/vms", 60.0)["vms"]) == VMS, "all VMs being known", 600.0)
        seen = agent.get("/v1/health")["passes"]
        processes.wait_until(lambda: agent.get("/v1/health")["passes"] >= seen + PASSES, "some passes", 600.0)
        agents, gateways = agent.pid, _gateway(agent)
        assert agents is not None
        scrape(agent.metrics)
        before = processes.cpu_seconds(gateways)
        for _ in range(SCRAPES):
            # One text serves all who scrape within a second.
            time.sleep(PAUSE)
            scrape(agent.metrics)
        scrapes = (processes.cpu_seconds(gateways) - before) / SCRAPES
        answers = _answers(agent, agents)
        memory = {
            name: (resident.of(pid), resident.of(pid, "VmHWM"))
            for name, pid in (("agent", agents), ("gateway", gateways))
        }
    for name, goal in (("agent", 48.0), ("gateway", None)):
        now, most = memory[name]
        note = f"VmRSS; {most:.0f} MiB at most (VmHWM)"
        yield Figure(f"the {name}'s resident memory at {VMS} VMs", now, "MiB", goal, note)
    note = f"CPU time over {SCRAPES} scrapes"
    yield Figure(f"a scrape of {VMS} VMs in the gateway", scrapes * 1000, "ms", None, note)
    note = f"CPU time over {ROUNDS} rounds of what a scrape asks, its own work in between included"
    yield Figure(f"a scrape of {VMS} VMs in the agent", answers * 1000, "ms", None, note)


def _answers(agent: Agent, pid: int) -> float:
    """Seconds of CPU time that the agent takes for what one scrape asks it."""
    before = processes.cpu_seconds(pid)
    for _ in range(ROUNDS):
        for path in ("/v1/telemetry?newest=1", "/v1/health", "/v1/vms", "/v1/caches"):
            agent.get(path)
    return (processes.cpu_seconds(pid) - before) / ROUNDS


def _gateway(agent: Agent) -> int:
    """PID of the gateway, which is started for it."""
    scrape(agent.metrics)
    assert agent.gateway.pid is not None
    return agent.gateway.pid


def _start_paused(connection: libvirt.virConnect, number: int) -> None:
    vms.define(connection, standing(number)).createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
