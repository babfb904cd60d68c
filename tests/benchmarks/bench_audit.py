# SPDX-License-Identifier: Apache-2.0
"""What a pass costs while nothing happens, with 200 VMs of 20 threads each."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Iterator

from tests.benchmarks.support import Figure, sleeping, spread
from vmqos.agent.backoff import Backoff
from vmqos.agent.inventory import ObservedVm
from vmqos.agent.reconcile import Change, Reconciler
from vmqos.agent.snapshot import CacheTopology
from vmqos.allocation import Policy
from vmqos.hypervisor import processes as process_table
from vmqos.hypervisor.model import NovaMetadata, VirtualMachine
from vmqos.resctrl.filesystem import Filesystem

VMS, THREADS, ROUNDS = 200, 20, 50


def run(resctrl: str) -> Iterator[Figure]:
    """An idle pass, and a full audit for comparison."""
    filesystem = Filesystem(resctrl)
    with sleeping(VMS, THREADS) as processes:
        vms = dict(_vm(number, tids[0]) for number, tids in enumerate(processes))
        reconciler = Reconciler(filesystem, Backoff(1.0, 60.0))

        def one_pass(everything: bool) -> float:
            before = time.process_time()
            with filesystem.lock(exclusive=True, timeout=5.0):
                reconciler.run(Change(frozenset(), everything), vms, CacheTopology(), Policy())
            return (time.process_time() - before) * 1e3

        first = one_pass(True)
        for _ in range(5):
            one_pass(False)
        idle = [one_pass(False) for _ in range(ROUNDS)]
        full = [one_pass(True) for _ in range(3)]
        vms.clear()
        for _ in range(3):
            one_pass(True)
    yield Figure("an idle pass, 200 VMs x 20 threads, CPU", statistics.median(idle), "ms", 10.0, spread(idle, "ms"))
    detail = f"the first placing {first:.1f} ms"
    yield Figure("a full audit of the same, CPU", statistics.median(full), "ms", None, detail)


def _vm(number: int, pid: int) -> tuple[str, ObservedVm]:
    """Every twentieth VM has exclusive ways, half of the others share, the rest ask for nothing."""
    name = str(uuid.UUID(int=number + 1))
    if number % 20 == 0:
        specs = {"hw:cache_ways": "1"}
    elif number % 2:
        specs = {"hw:cache_ways": "2", "hw:cache_policy": "shared"}
    else:
        specs = {}
    process = process_table.of_pid(pid)
    metadata = NovaMetadata(f"vm-{number}", "bench", "", specs)
    vm = VirtualMachine(name, f"bench-{number}", number, process, None, False, metadata)
    return name, ObservedVm(vm, frozenset({0}))
