# SPDX-License-Identifier: Apache-2.0
"""Tasks are moved as the kernel moves them."""

from __future__ import annotations

import errno

import pytest

from tests.unit.simulator.table import Bench, small
from vmqos.simulator.hardware.profiles import PROFILES
from vmqos.simulator.kernel.tree import Caller


@pytest.fixture
def bench() -> Bench:
    bench = Bench(small(PROFILES["cascade-lake"]))
    for path in ("a", "b", "a/mon_groups/m"):
        bench.mkdir(path)
    for tid in (1, 10, 11, 12):
        bench.table.start(tid)
    return bench


@pytest.mark.parametrize("data", ["10,11\n", "10,11", " 10 , 11\n", "0xa,+11\n", "10,11,\n", "10,11,\n12\n"])
def test_ids_are_joined_by_commas(bench: Bench, data: str) -> None:
    assert bench.write("a/tasks", data) == len(data)
    assert bench.read("a/tasks") == "10\n11\n"


def test_a_task_is_in_one_control_group(bench: Bench) -> None:
    bench.write("a/tasks", "10\n")
    bench.write("b/tasks", "10\n")
    assert [bench.read(f"{group}tasks") for group in ("a/", "b/", "")] == ["", "10\n", "1\n11\n12\n"]


def test_what_was_moved_before_a_failure_stays_moved(bench: Bench) -> None:
    said = bench.refused("a/tasks", "10,99,11\n", errno.ESRCH)
    assert said == "No task 99\nError while processing task 99\n"
    assert bench.read("a/tasks") == "10\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        ("10 11\n", "Task list parsing error pid 10 11\n"),
        ("10\n11\n", "Task list parsing error pid 10\n11\n"),
        (",10\n", "Task list parsing error pid \n"),
        ("-1\n", "Invalid pid -1\n"),
        ("abc\n", "Task list parsing error pid abc\n"),
        ("99999999999\n", "Task list parsing error pid 99999999999\n"),
    ],
)
def test_anything_but_ids_is_refused(bench: Bench, data: str, status: str) -> None:
    assert bench.refused("a/tasks", data, errno.EINVAL) == status


def test_0_is_the_writer_itself(bench: Bench) -> None:
    bench.write("a/tasks", "0\n", Caller(tid=12))
    assert bench.read("a/tasks") == "12\n"


def test_a_user_may_move_only_tasks_of_his_own(bench: Bench) -> None:
    bench.table.start(50, uid=1000)
    user = Caller(1000, 1000, 50)
    bench.write("a/tasks", "50\n", user)
    said = bench.refused("a/tasks", "1\n", errno.EPERM, user)
    assert said == "No permission to move task 1\nError while processing task 1\n"


def test_a_monitoring_group_takes_tasks_of_its_parent_only(bench: Bench) -> None:
    said = bench.refused("a/mon_groups/m/tasks", "10\n", errno.EINVAL)
    assert said == "Can't move task to different control group\nError while processing task 10\n"
    bench.write("a/tasks", "10,11\n")
    bench.write("a/mon_groups/m/tasks", "10\n")
    assert (bench.read("a/mon_groups/m/tasks"), bench.read("a/tasks")) == ("10\n", "10\n11\n")
    bench.write("a/tasks", "10\n")
    assert bench.read("a/mon_groups/m/tasks") == ""


def test_a_group_that_goes_gives_its_tasks_to_the_parent(bench: Bench) -> None:
    bench.write("a/tasks", "10,11\n")
    bench.write("a/mon_groups/m/tasks", "10\n")
    bench.machine.rmdir("a/mon_groups/m")
    assert bench.read("a/tasks") == "10\n11\n"
    bench.machine.rmdir("a")
    assert bench.read("tasks") == "1\n10\n11\n12\n"
