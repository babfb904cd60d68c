# SPDX-License-Identifier: Apache-2.0
"""What resctrl costs the kernel when a CPU goes from a task of one group to a task of another.

A token goes round a ring of processes on one CPU. The processes are all in one group, or each is in one of several. The
kernel writes a register (IA32_PQR_ASSOC) at a switch where the group differs. How many instructions that takes is
counted; how many cycles the write itself takes, no emulated CPU knows.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence

from tests.benchmarks.arena import Arena
from tests.benchmarks.figures import Effort, Figure, spread
from tests.benchmarks.instructions import BYTES
from tests.benchmarks.programs import compiled
from vmqos.resctrl import exceptions, groups, info, tasks
from vmqos.resctrl.filesystem import Filesystem

PROCESSES = 200
GROUPS = (1, 2, 16, 200)
SWITCHES = 20_000
LIMBO = 120.0


def run(arena: Arena, effort: Effort) -> Iterator[Figure | str]:
    """The same ring, over more and more groups."""
    filesystem = arena.filesystem
    found = info.read_capabilities(filesystem).monitoring
    # The default group has one, and each counter of instructions.
    rmids = found.num_rmids - 1 - len(arena.counters) if found is not None else 0
    with subprocess.Popen(
        [compiled("ring"), str(PROCESSES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as ring:
        assert ring.stdin is not None and ring.stdout is not None
        pids = [int(word) for word in ring.stdout.readline().split()]
        alone: float | None = None
        for count in GROUPS:
            if count > rmids:
                yield f"a switch, {count} groups: left out, this machine has {rmids} RMIDs to spare"
                continue
            with _groups(filesystem, count) as names:
                for number, pid in enumerate(pids):
                    tasks.move(filesystem, groups.monitoring_directory("", names[number % count]), {pid})
                samples, executed = [], []
                for _ in range(effort.rounds):
                    before = _executed(filesystem, names) if arena.counters else 0
                    ring.stdin.write(f"go {SWITCHES // PROCESSES}\n")
                    ring.stdin.flush()
                    samples.append(int(ring.stdout.readline()) / SWITCHES)
                    executed.append((_executed(filesystem, names) - before) / SWITCHES if arena.counters else 0.0)
            detail = spread(samples, "ns on the clock")
            if not arena.counters:
                yield Figure(f"a switch, {count} groups", statistics.median(samples), "ns", None, detail)
                continue
            least = min(executed)
            alone = least if alone is None else alone
            yield Figure(f"a switch, {count} groups", least, "instructions", None,
                         f"{least - alone:+.1f} beside one group; {detail}")  # fmt: skip


@contextlib.contextmanager
def _groups(filesystem: Filesystem, count: int) -> Iterator[list[str]]:
    names = list[str]()
    try:
        for number in range(count):
            _make(filesystem, f"ring-{number}")
            names.append(f"ring-{number}")
        yield names
    finally:
        for name in names:
            groups.remove_monitoring_group(filesystem, "", name)


def _make(filesystem: Filesystem, name: str) -> None:
    deadline = time.monotonic() + LIMBO
    while True:
        try:
            return groups.create_monitoring_group(filesystem, "", name)
        except exceptions.RmidsInLimbo:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _executed(filesystem: Filesystem, names: Sequence[str]) -> int:
    """The instructions that the processes in these groups have executed."""
    found = 0
    for name in names:
        directory = groups.monitoring_directory("", name)
        for cache in filesystem.directories(directory, "mon_data"):
            found += int(filesystem.read(f"{directory}/mon_data/{cache}/mbm_total_bytes"))
    return found // BYTES
