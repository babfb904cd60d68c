# SPDX-License-Identifier: Apache-2.0
"""The agent's memory with many VMs on the host; they are paused, which makes no difference to it.

It stands on the private libvirtd and the simulator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import libvirt

from tests.benchmarks.figures import Figure
from tests.benchmarks.host import host, standing
from tools.lab import processes, vms
from tools.lab.agent import Agent

VMS = 200
PASSES = 10


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
        now, most = _resident(agent, "VmRSS"), _resident(agent, "VmHWM")
    yield Figure(
        f"the agent's resident memory at {VMS} VMs", now, "MiB", 60.0, f"VmRSS; {most:.0f} MiB at most (VmHWM)"
    )


def _start_paused(connection: libvirt.virConnect, number: int) -> None:
    vms.define(connection, standing(number)).createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)


def _resident(agent: Agent, field: str) -> float:
    for line in Path(f"/proc/{agent.pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no {field}")
