# SPDX-License-Identifier: Apache-2.0
"""Moving a VM's threads into its group, against a C program that only does the writes.

Two figures: the client's moving of known threads, which is what the C program does; and the agent's placing, which also
takes the lock, finds the threads before and once more after the move, and makes sure that the process is the same.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Iterator

from tests.benchmarks.support import Figure, compiled, sleeping, spread
from vmqos.agent import placement
from vmqos.agent.placement import Target
from vmqos.hypervisor import processes, vm_tasks
from vmqos.hypervisor.model import VirtualMachine
from vmqos.resctrl import groups, tasks
from vmqos.resctrl.filesystem import Filesystem

GROUP = "vmqos.00000000-0000-0000-0000-0000000000be"
ROUNDS = 15


def run(resctrl: str) -> Iterator[Figure]:
    """Place 20, 100 and 1000 threads."""
    filesystem = Filesystem(resctrl)
    groups.create(filesystem, GROUP)
    try:
        with compiled("write_tasks") as program:
            for threads in (20, 100, 1000):
                yield from _measure(filesystem, program, threads)
    finally:
        groups.remove(filesystem, GROUP)


def _measure(filesystem: Filesystem, program: str, threads: int) -> Iterator[Figure]:
    path = os.path.join(filesystem.root, GROUP, "tasks")
    moving, placing, limit = [], [], []
    with sleeping(1, threads) as (tids,):
        vm = VirtualMachine("u", "bench", 1, processes.of_pid(tids[0]), None, False, None)
        written = " ".join(map(str, tids))
        for _ in range(ROUNDS):
            done = subprocess.run([program, path], input=written, capture_output=True, text=True, check=True)
            limit.append(int(done.stdout) / 1e6)
            _check_and_put_back(filesystem, tids)
            before = time.perf_counter()
            tasks.move(filesystem, GROUP, tids)
            moving.append((time.perf_counter() - before) * 1e3)
            _check_and_put_back(filesystem, tids)
            before = time.perf_counter()
            with filesystem.lock(exclusive=True, timeout=5.0):
                placement.place(filesystem, Target(GROUP), lambda: vm_tasks.all_tasks(vm), fresh=True)
            placing.append((time.perf_counter() - before) * 1e3)
            _check_and_put_back(filesystem, tids)
    least = statistics.median(limit)
    detail = f"vmqos {spread(moving, 'ms')}; the writes alone in C {spread(limit, 'ms')}"
    yield Figure(f"moving {threads} threads, times the C program", statistics.median(moving) / least, "x", 1.5, detail)
    detail = f"vmqos {spread(placing, 'ms')}"
    yield Figure(
        f"finding and placing {threads} threads, times the same", statistics.median(placing) / least, "x", None, detail
    )


def _check_and_put_back(filesystem: Filesystem, tids: list[int]) -> None:
    there = set(tasks.read_tasks(filesystem, GROUP))
    if there != set(tids):
        raise AssertionError(f"{len(set(tids) - there)} of {len(tids)} threads were not moved")
    tasks.move(filesystem, "", tids)
