# SPDX-License-Identifier: Apache-2.0
"""Moving a VM's threads into its group.

Two figures: the client's moving of known threads, which is what the C program and pqos do; and the agent's placing,
which also takes the lock, finds the threads before and once more after the move, and makes sure that the process is the
same.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks import rivals
from tests.benchmarks.arena import LIMIT, Arena
from tests.benchmarks.contest import compare
from tests.benchmarks.figures import Comparison, Effort
from tests.benchmarks.programs import sleeping
from vmqos.agent.act import move_tasks
from vmqos.agent.act.move_tasks import TaskGroup
from vmqos.hypervisor import processes, vm_tasks
from vmqos.hypervisor.model import VirtualMachine
from vmqos.resctrl import tasks


def run(arena: Arena, effort: Effort) -> Iterator[Comparison]:
    """Place threads, from few to many."""
    with arena.group() as group:
        for threads in effort.sizes:
            yield from _measure(arena, effort, group, threads)


def _measure(arena: Arena, effort: Effort, group: str, threads: int) -> Iterator[Comparison]:
    filesystem = arena.filesystem
    with sleeping(1, threads) as (tids,):
        vm = VirtualMachine("u", "bench", 1, processes.of_pid(tids[0]), None, False, None)
        known = frozenset(tids)
        there = rivals.moving(filesystem.path(group, "tasks"), tids)
        back = rivals.moving(filesystem.path("tasks"), tids)

        def place() -> None:
            with filesystem.lock(exclusive=True, timeout=5.0), vm_tasks.lister(vm) as list_tasks:
                move_tasks.place(filesystem, TaskGroup(group), list_tasks, there=set())

        def check() -> None:
            if (found := tasks.read_tasks(filesystem, group)) != set(tids):
                raise AssertionError(f"{len(set(tids) - found)} of {len(tids)} threads were not moved")

        with rivals.system_calls(there) as calls, rivals.system_calls(back) as porter:
            limit = arena.limit(calls)
            arguments = "-a", f"pid:{group.removeprefix(rivals.COS)}={','.join(map(str, tids))}"
            pqos = arena.pqos_sides(*arguments) if threads <= rivals.MOST_PIDS else []
            yield compare(
                f"moving {threads} threads",
                [arena.ours(lambda: tasks.move(filesystem, group, known)), limit, *pqos],
                effort,
                check=check,
                undo=lambda: porter.go(0),
                goal=1.5,
            )
            yield compare(
                f"finding and placing {threads} threads, safely",
                [arena.ours(place), limit],
                effort,
                check=check,
                undo=lambda: porter.go(0),
                remark=f"{LIMIT}: those of the move alone",
            )
