# SPDX-License-Identifier: Apache-2.0
"""Moving a VM's threads into its group, against a C program that only does the writes."""

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
                yield _measure(filesystem, program, threads)
    finally:
        groups.remove(filesystem, GROUP)


def _measure(filesystem: Filesystem, program: str, threads: int) -> Figure:
    path = os.path.join(filesystem.root, GROUP, "tasks")
    ours, limit = [], []
    with sleeping(1, threads) as (tids,):
        vm = VirtualMachine("u", "bench", 1, processes.of_pid(tids[0]), None, False, None)
        for _ in range(ROUNDS):
            limit.append(int(subprocess.run([program, path], input=" ".join(map(str, tids)), capture_output=True,
                                            text=True, check=True).stdout) / 1e6)  # fmt: skip
            _check_and_put_back(filesystem, tids)
            before = time.perf_counter()
            with filesystem.lock(exclusive=True, timeout=5.0):
                placement.place(filesystem, Target(GROUP), lambda: vm_tasks.all_tasks(vm), fresh=True)
            ours.append((time.perf_counter() - before) * 1e3)
            _check_and_put_back(filesystem, tids)
    ratio = statistics.median(ours) / statistics.median(limit)
    detail = f"vmqos {spread(ours, 'ms')}; the writes alone in C {spread(limit, 'ms')}"
    return Figure(f"placing {threads} threads, times the C program", ratio, "x", 1.5, detail)


def _check_and_put_back(filesystem: Filesystem, tids: list[int]) -> None:
    there = set(tasks.read_tasks(filesystem, GROUP))
    if there != set(tids):
        raise AssertionError(f"{len(set(tids) - there)} of {len(tids)} threads were not moved")
    tasks.move(filesystem, "", tids)
