# SPDX-License-Identifier: Apache-2.0
"""The counters move with the CPU time of the tasks of each group."""

from __future__ import annotations

import pytest

from tests.unit.simulator.table import Bench, small
from vmqos.simulator.hardware.profiles import PROFILES
from vmqos.simulator.hardware.tasks import Usage

MACHINE = small(PROFILES["cascade-lake"])
BIG = 1 << 30


class Load(Bench):
    """A machine whose processes work."""

    def __init__(self, options: str = "") -> None:
        super().__init__(MACHINE, options)
        for tid in (10, 20):
            self.table.start(tid)
            self.table.usages[str(tid)] = Usage(100.0, BIG, 0)
        for name, tid in (("a", 10), ("b", 20)):
            self.mkdir(name)
            self.write(f"{name}/tasks", f"{tid}\n")
        self.let(10, 0.0)

    def let(self, tid: int, seconds: float, cpu: int = 0, wall: float = 1.0) -> None:
        """Let a process work for so many seconds, and time pass."""
        path = str(tid)
        self.table.usages[path] = Usage(self.table.usages[path].seconds + seconds, BIG, cpu)
        self.now += wall
        self.read("mon_data/mon_L3_00/llc_occupancy")

    def total(self, group: str, domain: int = 0) -> int:
        """``mbm_total_bytes`` of a group."""
        return int(self.read(f"{group}mon_data/mon_L3_{domain:02d}/mbm_total_bytes"))


def test_what_ran_before_does_not_count() -> None:
    assert Load().total("a/") == 0


def test_a_group_counts_where_its_task_ran() -> None:
    load = Load()
    load.let(10, 0.9)
    assert load.total("a/") > 0
    assert load.total("b/") == load.total("a/", 1) == 0
    load.let(20, 0.9, cpu=3)
    assert load.total("b/", 1) > 0


def test_a_counter_stands_still_with_its_tasks() -> None:
    load = Load()
    load.let(10, 0.9)
    before = load.total("a/")
    load.let(20, 0.9)
    assert load.total("a/") == before


def test_the_working_group_fills_its_ways() -> None:
    load = Load()
    load.write("a/schemata", "L3:0=1\n")
    for _ in range(5):
        load.let(10, 1.0)
    held = int(load.read("a/mon_data/mon_L3_00/llc_occupancy"))
    assert held == pytest.approx((16 << 20) / 11, rel=0.1)


@pytest.mark.parametrize(("options", "line"), [("", "MB:0=10\n"), ("mba_MBps", "MB:0=100\n")])
def test_throttled_groups_move_less(options: str, line: str) -> None:
    totals = []
    for setting in (None, line):
        load = Load(options)
        if setting:
            load.write("a/schemata", setting)
        load.let(10, 1.0)
        totals.append(load.total("a/"))
    assert totals[1] < totals[0] / 5


def test_a_cpu_of_a_group_counts_for_tasks_of_the_default_group() -> None:
    load = Load()
    load.write("tasks", "10\n")
    load.write("b/cpus", "1\n")
    load.let(10, 0.9, cpu=0)
    assert load.total("b/") > 0


def test_threads_of_one_process_may_be_in_several_groups() -> None:
    load = Load()
    load.table.start(11, tgid=10)
    load.write("b/tasks", "11\n")
    for path in ("10/task/10", "10/task/11"):
        load.table.usages[path] = Usage(0.0, BIG, 0)
    load.let(10, 0.0)
    load.table.usages["10/task/11"] = Usage(0.9, BIG, 0)
    load.let(10, 0.0)
    assert load.total("b/") > 0
    assert load.total("a/") == 0


def test_many_reads_take_one_look() -> None:
    load = Load()
    load.let(10, 0.9, wall=0.1)
    assert load.total("a/") == 0
