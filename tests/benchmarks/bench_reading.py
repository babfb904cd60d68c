# SPDX-License-Identifier: Apache-2.0
"""Who has which ways, and which tasks are where: every control group's masks and tasks."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks import rivals
from tests.benchmarks.arena import Arena
from tests.benchmarks.contest import compare
from tests.benchmarks.figures import Comparison, Effort
from tests.benchmarks.programs import sleeping
from vmqos.resctrl import groups, tasks

THREADS = 100
"""In each group."""


def run(arena: Arena, effort: Effort) -> Iterator[Comparison]:
    """Read all groups, each with some threads in it."""
    with arena.group():
        yield _measure(arena, effort)


def _measure(arena: Arena, effort: Effort) -> Comparison:
    filesystem = arena.filesystem
    names = [group.name for group in groups.list_control_groups(filesystem)]
    with sleeping(len(names) - 1, THREADS) as processes:
        for name, tids in zip(names[1:], processes, strict=True):
            tasks.move(filesystem, name, tids)

        def read() -> int:
            for group in groups.list_control_groups(filesystem):
                tasks.read_tasks(filesystem, group.name)
            return len(names)

        files = [filesystem.path(name, file) for name in names for file in ("mode", "schemata", "tasks")]
        with rivals.system_calls(rivals.reading(files)) as calls:
            return compare(
                f"reading {len(names)} control groups, all but one of {THREADS} threads",
                [arena.ours(read), arena.limit(calls), *arena.pqos_sides("--show")],
                effort,
                remark="pqos reads no modes, and prints what it read" if arena.pqos else "",
            )
