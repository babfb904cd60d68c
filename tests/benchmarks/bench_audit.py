# SPDX-License-Identifier: Apache-2.0
"""What a pass of the agent costs, with 200 VMs of 20 threads each: while nothing happens, and a full audit.

Libvirt is not asked here. Every twentieth VM has exclusive ways, half of the others share, the rest ask for nothing.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

from tests.benchmarks import rivals
from tests.benchmarks.arena import Arena
from tests.benchmarks.contest import compare
from tests.benchmarks.figures import Comparison, Effort, Figure, spread, timed
from tests.benchmarks.programs import sleeping
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.reconcile import Change, Reconciler
from vmqos.agent.snapshot import CacheTopology
from vmqos.allocation import Policy
from vmqos.daemon.backoff import Backoff
from vmqos.hypervisor import processes as process_table
from vmqos.hypervisor.model import NovaMetadata, VirtualMachine
from vmqos.resctrl import groups

THREADS = 20
FULL_AUDITS = 3


def run(arena: Arena, effort: Effort) -> Iterator[Comparison | Figure]:
    """An idle pass against the reads that it takes, and a full audit."""
    filesystem = arena.filesystem
    logging.getLogger("vmqos").setLevel(logging.ERROR)
    with sleeping(effort.vms, THREADS) as processes:
        vms = dict(_vm(number, tids[0]) for number, tids in enumerate(processes))
        backoff = Backoff(0.2, 1.0)
        reconciler = Reconciler(filesystem, backoff)

        def one_pass(everything: bool = False) -> None:
            change = Change(frozenset(), everything=everything)
            reconciler.request(change, vms)
            with filesystem.lock(exclusive=True, timeout=5.0):
                reconciler.run(change, vms, CacheTopology(), Policy())

        first = timed(lambda: one_pass(True))
        # A pass does as much as fits into its share of the lock.
        while reconciler.is_unfinished:
            one_pass()
        # Until the RMIDs that were in limbo are given out.
        while backoff.next_due() is not None:
            time.sleep(0.1)
            one_pass()
        names = [group.name for group in groups.list_control_groups(filesystem)]
        files = [filesystem.path(name, file) for name in names for file in ("mode", "schemata")]
        with rivals.system_calls(rivals.reading([*files, filesystem.path("tasks")])) as calls:
            idle = compare(
                f"an idle pass, {effort.vms} VMs x {THREADS} threads",
                [arena.ours(one_pass), arena.limit(calls)],
                effort,
                remark=f"{len(names)} control groups; the lock, and looking for new monitoring groups, are ours alone",
            )
        full = compare(
            "a full audit of the same",
            [arena.ours(lambda: one_pass(True))],
            replace(effort, rounds=min(FULL_AUDITS, effort.rounds), counting=0.0),
            remark=f"the first placing took {first.cpu:.1f} ms of CPU",
        )
        vms.clear()
        for _ in range(3):
            one_pass(True)
    yield idle
    ours = next(iter(idle.costs.values()))
    yield Figure("the idle pass, CPU", ours.cpu, "ms", 10.0, spread([sample.cpu for sample in ours.samples], "ms"))
    yield full


def _vm(number: int, pid: int) -> tuple[str, ObservedVm]:
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
