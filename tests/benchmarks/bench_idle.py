# SPDX-License-Identifier: Apache-2.0
"""How often an agent wakes up, and the CPU time that it takes, on a host where nothing happens.

It stands on the private libvirtd and the simulator, with all intervals as shipped, and its VMs are paused. Within a
pass the agent's threads wait for libvirt and for the simulator hundreds of times, so the kernel's number of switches
tells the length of the pass. A wake-up is a switch of any of the threads after all of them rested for some time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import libvirt

from tests.benchmarks.bench_start import wait_until_settled
from tests.benchmarks.figures import Figure
from tests.benchmarks.host import host, standing
from tools.lab import processes, vms

VMS = 50
BEFORE = 15.0
"""Seconds after the last VM's start in which the looks that follow from it come to an end."""
DURATION = 130.0
"""Seconds: two full audits with the shipped ``full_audit_interval``."""
REST = 0.04
"""Seconds without a switch after which the next one is a wake-up."""


def run() -> Iterator[Figure]:
    """Let the agent settle, and count, with the counters read and without."""
    for name, interval in (("counters read every 2 s", 2.0), ("counters not read", 0.0)):
        options = {"telemetry": {"interval": interval}}
        with host(options) as ours, contextlib.closing(ours.daemon.connect()) as connection:
            for number in range(VMS):
                domain = vms.define(connection, standing(number))
                domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
            ours.agent.start()
            wait_until_settled(ours.agent, VMS)
            time.sleep(BEFORE)
            assert ours.agent.pid is not None
            yield from _measure(ours.agent.pid, f"an idle agent, {VMS} VMs, {name}")


def _measure(pid: int, name: str) -> Iterator[Figure]:
    begun, used, passes = time.monotonic(), processes.cpu_seconds(pid), 0
    last, rested_since = _switches(pid), begun
    while time.monotonic() < begun + DURATION:
        time.sleep(REST / 4)
        if (now := _switches(pid)) != last:
            passes += time.monotonic() - rested_since > REST
            last, rested_since = now, time.monotonic()
    took = time.monotonic() - begun
    yield Figure(f"{name}: wake-ups", passes / took, "/s", 2.0, f"of any thread, over {took:.0f} s")
    used = (processes.cpu_seconds(pid) - used) / took
    yield Figure(f"{name}: CPU time", used * 1000, "ms/s", None, "system calls included")


def _switches(pid: int) -> int:
    """How often the threads gave up a CPU to wait, all together."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status = (task / "status").read_text()
            total += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return total
