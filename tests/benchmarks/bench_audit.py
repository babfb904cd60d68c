# SPDX-License-Identifier: Apache-2.0
"""What a pass of the agent costs, with VMs of 20 threads each: an idle one, one about one VM, a full audit.

Libvirt is not asked here. Every twentieth VM has exclusive ways, half of the others share, the rest ask for nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import uuid as uuids
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tests.benchmarks import rivals
from tests.benchmarks.arena import Arena
from tests.benchmarks.contest import compare
from tests.benchmarks.figures import Comparison, Effort, Figure, spread, timed
from tests.benchmarks.programs import sleeping
from tools.lab.processes import wait_until
from vmqos.agent.observe import flavor_request
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.reconcile import Reconciler
from vmqos.agent.steps import Change
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Policy
from vmqos.daemon.backoff import Backoff
from vmqos.group_names import PREFIX, vm_group
from vmqos.hypervisor import processes as process_table
from vmqos.hypervisor.model import NovaMetadata, VirtualMachine
from vmqos.resctrl import groups
from vmqos.resctrl.topology import CacheTopology

THREADS = 20
CLASS = "vmqos.shared-ways2"
FULL_AUDITS = 3

CLEAN_WITHIN = 60.0
"""Seconds within which no group of a VM is left once there are no VMs."""


def run(arena: Arena, effort: Effort) -> Iterator[Comparison | Figure]:
    """An idle pass against the reads that it takes, the start of a VM against its calls, events, and a full audit."""
    logging.getLogger("vmqos").setLevel(logging.ERROR)
    for count in sorted({*effort.hosts, effort.vms}):
        with _host(arena, count) as host:
            if count == effort.vms:
                idle = _idle(arena, effort, host)
                yield idle
                ours = next(iter(idle.costs.values()))
                detail = spread([sample.cpu for sample in ours.samples], "ms")
                yield Figure("the idle pass, CPU", ours.cpu, "ms", 10.0, detail)
                yield _start(arena, effort, host)
                few = replace(effort, rounds=min(FULL_AUDITS, effort.rounds), counting=0.0)
                remark = f"the first placing took {host.first.cpu:.1f} ms of CPU"
                full = [arena.ours(lambda: host.run(everything=True))]
                yield compare("a full audit of the same", full, few, remark=remark)
            for name, vm in (("shares ways", 1), ("has ways of its own", 0), ("asks for nothing", 2)):
                changed = frozenset({list(host.vms)[vm]})
                event = [arena.ours(lambda: host.run(changed))]  # noqa: B023
                yield compare(f"an event about a VM that {name}, one of {count}", event, effort)


class _Host:
    """VMs whose tasks are where they belong, and the agent's heart, without libvirt."""

    def __init__(self, arena: Arena, vms: Mapping[str, ObservedVm]) -> None:
        self.filesystem = arena.filesystem
        self.vms = dict(vms)
        self.backoff = Backoff(0.2, 1.0)
        self.reconciler = Reconciler(arena.filesystem, self.backoff)
        self.first = timed(lambda: self.run(everything=True))
        # A pass does as much as fits into its share of the lock.
        while self.reconciler.is_unfinished:
            self.run()
        # Until the RMIDs that were in limbo are given out.
        while self.backoff.next_due() is not None:
            time.sleep(0.1)
            self.run()

    def run(self, changed: frozenset[str] = frozenset(), *, everything: bool = False) -> None:
        """One pass."""
        change = Change(changed, everything=everything)
        self.reconciler.request(change, self.vms)
        with self.filesystem.lock(exclusive=True, timeout=5.0):
            self.reconciler.run(change, self.vms, CacheTopology(), Policy())

    def is_left_clean(self) -> bool:
        """Whether no group of a VM is left after another full audit.

        The VMs' processes live still. On a slow machine one audit has no time to find out of each whether it is the
        QEMU of a VM that libvirt lost, and leaves some to the next.
        """
        self.run(everything=True)
        names = (*groups.list_names(self.filesystem), *self.filesystem.directories(groups.MON_GROUPS))
        return not any(name.startswith(PREFIX) for name in names)

    def start(self, record: VmRecord) -> None:
        """The group of a VM that libvirt is starting."""
        with self.filesystem.lock(exclusive=True, timeout=5.0):
            if not self.reconciler.starting.start({record.uuid: record}):
                raise AssertionError("there is no room for another VM")


@contextlib.contextmanager
def _host(arena: Arena, count: int) -> Iterator[_Host]:
    with sleeping(count, THREADS) as processes:
        host = _Host(arena, dict(_vm(number, tids[0]) for number, tids in enumerate(processes)))
        yield host
        host.vms.clear()
        wait_until(host.is_left_clean, "the removal of the groups of all VMs", CLEAN_WITHIN, 0.1)


def _idle(arena: Arena, effort: Effort, host: _Host) -> Comparison:
    names = [group.name for group in groups.list_control_groups(host.filesystem)]
    path = host.filesystem.path
    calls = [
        f"lock {path()}",
        *(f"stat {path(file)}" for file in ("", "info")),
        f"list {path()}",
        *rivals.reading(path(name, file) for name in names for file in ("mode", "schemata")),
        *(f"stat {path(name, groups.MON_GROUPS)}" for name in names),
        *rivals.reading([path("tasks")]),
    ]
    with rivals.system_calls(calls) as limit:
        return compare(
            f"an idle pass, {len(host.vms)} VMs x {THREADS} threads",
            [arena.ours(host.run), arena.limit(limit)],
            effort,
            goal=1.15,
            remark=f"{len(names)} control groups",
        )


def _start(arena: Arena, effort: Effort, host: _Host) -> Comparison:
    """A VM of a shared class that is there: its group for monitoring is all that has to be made."""
    uuid = str(uuids.UUID(int=1 << 64))
    _, observed = _vm(1, os.getpid())
    observed = replace(observed, vm=replace(observed.vm, uuid=uuid))
    record = VmRecord(observed, flavor_request.read(observed.vm))
    made = groups.monitoring_directory(CLASS, vm_group(uuid))
    path = host.filesystem.path

    def undo() -> None:
        host.filesystem.rmdir(made)
        host.reconciler.starting.starts.end(uuid)
        host.run()

    calls = [*rivals.reading([path("mode"), path("schemata")]), f"mkdir {path(made)}"]
    with rivals.system_calls(calls) as limit:
        return compare(
            f"the group of a VM that libvirt starts, beside {len(host.vms)}",
            [arena.ours(lambda: host.start(record)), arena.limit(limit)],
            effort,
            undo=undo,
            goal=3.0,
            remark="ours alone are the lock, the list of all groups, and the plan",
        )


def _vm(number: int, pid: int) -> tuple[str, ObservedVm]:
    name = str(uuids.UUID(int=number + 1))
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
