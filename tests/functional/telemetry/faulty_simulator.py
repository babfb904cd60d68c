# SPDX-License-Identifier: Apache-2.0
"""The simulator, with counters that say what a test wants: ``MOUNTPOINT PROFILE FAULTS``.

The file FAULTS has a line ``GROUP CACHE TEXT`` for each counter that is to say TEXT (``Unavailable``, ``Error``), GROUP
being the name of the group's directory; it is read whenever a counter is. Memory traffic does not wait for real
processes: each read finds ``STEP`` bytes more than the one before.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vmqos.simulator.hardware.profiles import PROFILES
from vmqos.simulator.kernel.cpus import parse_list
from vmqos.simulator.machine import Machine
from vmqos.simulator.procfs import ProcFs
from vmqos.simulator.service import mount

STEP = 1 << 20
BEGIN = 1 << 40
"""Bytes that each counter has counted before the first look: what a spike would show."""


def main(mountpoint: str, profile: str, faults: str) -> None:
    """Serve until it is unmounted."""
    chosen = PROFILES[profile]
    cpus = parse_list(Path("/sys/devices/system/cpu/online").read_text(encoding="ascii"), 1 << 16)
    machine = Machine(replace(chosen, topology=chosen.topology.fitted(cpus)), ProcFs())
    machine.mount("")
    counters = machine.hardware.counters
    real, step = counters.read, {"reads": 0}

    def read(rmids: Sequence[int], domains: Sequence[int], event: str) -> str:
        wanted = _faults(machine, Path(faults))
        for one in itertools.product(rmids, domains):
            counters.set_fault(*one, wanted.get(one))
        text = real(rmids, domains, event)
        if event == "llc_occupancy" or not text.isdecimal():
            return text
        step["reads"] += 1
        share = 1 if event == "mbm_total_bytes" else 2
        return str((BEGIN + step["reads"] * STEP) // share)

    counters.read = read  # type: ignore[method-assign]
    mount(machine, mountpoint)


def _faults(machine: Machine, file: Path) -> dict[tuple[int, int], str]:
    """What the counters of an RMID and cache are to say."""
    lines = file.read_text().splitlines() if file.exists() else []
    wanted = {(name, int(cache)): text for name, cache, text in (line.split() for line in lines)}
    groups = [group for control in machine.mounted.groups for group in (control, *control.children)]
    return {
        (group.rmid, cache): text for group in groups for (name, cache), text in wanted.items()
        if group.directory.name == name
    }  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
