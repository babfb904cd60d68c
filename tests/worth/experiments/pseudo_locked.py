# SPDX-License-Identifier: Apache-2.0
"""Memory that is locked in the cache against memory of the heap, beside a noisy process, on a Broadwell.

In 2018 the median latency of reading pseudo-locked memory was about 7 times better than of memory by malloc, beside
somebody noisy. ``vmqos lock`` makes the region.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.worth import events
from tests.worth.events import Rest
from tests.worth.experiments.jitter import spread
from tests.worth.four_cases import KIB, MIB, modelled
from tests.worth.node import RESCTRL
from tests.worth.window import LINE
from vmqos.resctrl import topology

NAME = "worth"
SIZE, EVENTS = 256 * KIB, 40
STREAM = 48 * MIB
OTHERS = Rest(0, 2 * 16 * MIB // LINE)
"""The default group's: the noisy process is in it. At most twice the cache between two events."""


def run() -> dict[str, Any]:
    """Latencies of an event in nanoseconds, weighed, of memory of either kind."""
    subprocess.run(["mount", "-t", "resctrl", "-o", "debug", "resctrl", str(RESCTRL)], check=True)
    cache = next(iter(topology.read_caches(3).values()))
    cpus = sorted(cache.cpus)
    found = {}
    with tempfile.TemporaryDirectory() as directory, modelled():
        program = events.build(Path(directory))
        device = json.loads(_lock("create", NAME, "--cache", f"L3:{cache.id}", "--size", str(SIZE), "-f", "json"))
        try:
            with events.noise(program, cpus[-1], STREAM):
                for kind, memory in (("malloc", "-"), ("pseudo-locked", device["device"])):
                    print(kind, flush=True)
                    found[kind] = spread(events.watch(program, RESCTRL, cpus[0], SIZE, EVENTS, OTHERS, memory))
        finally:
            _lock("remove", NAME)
    subprocess.run(["umount", str(RESCTRL)], check=True)
    return found


def _lock(*arguments: str) -> str:
    command = [sys.executable, "-m", "vmqos.cli.main", "lock", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"vmqos lock {' '.join(arguments)}: {done.stderr}")
    return done.stdout
