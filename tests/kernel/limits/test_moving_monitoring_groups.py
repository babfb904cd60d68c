# SPDX-License-Identifier: Apache-2.0
"""A monitoring group changes its control group: the way to another class that keeps a VM's history."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.functional.resctrl_client.mounted import retry, sleepers
from tests.kernel.limits import patiently, processor
from tests.kernel.limits.conftest import hardware_ids
from vmqos.resctrl import exceptions, groups, tasks
from vmqos.resctrl.filesystem import Filesystem

pytestmark = pytest.mark.guest(machines=("cascade-lake", "milan"))

COUNTERS = ("mbm_local_bytes", "mbm_total_bytes")
SOURCE, TARGET = "one/mon_groups/vm", "two/mon_groups/vm"


@pytest.fixture(autouse=True)
def two_classes(fs: Filesystem) -> None:
    """Two control groups; the first one with a monitoring group."""
    patiently.create(fs, "one", "two")
    patiently.create_monitoring_group(fs, "one", "vm")


def counted(fs: Filesystem, group: str) -> dict[str, int]:
    return {event: int(fs.read(group, "mon_data/mon_L3_00", event)) for event in COUNTERS}


def enter(fs: Filesystem, *tids: int) -> None:
    for group in ("one", SOURCE):
        tasks.move(fs, group, tids)


def test_the_rmid_and_the_counts_are_kept_and_the_closid_is_the_new_groups(
    fs: Filesystem, spinner: subprocess.Popen[bytes]
) -> None:
    enter(fs, spinner.pid)
    retry(lambda: positive(counted(fs, SOURCE)), AssertionError)
    before, rmid = counted(fs, SOURCE), hardware_ids(fs, SOURCE)[1]
    retry(lambda: runs_as(*hardware_ids(fs, SOURCE)), AssertionError)
    groups.move_monitoring_group(fs, "vm", "one", "two")
    after = counted(fs, TARGET)
    assert all(after[event] >= before[event] for event in COUNTERS), (before, after)
    assert hardware_ids(fs, TARGET) == (hardware_ids(fs, "two")[0], rmid)
    retry(lambda: runs_as(*hardware_ids(fs, TARGET)), AssertionError)
    retry(lambda: more(counted(fs, TARGET), after), AssertionError)


def positive(counts: dict[str, int]) -> None:
    assert min(counts.values()) > 0


def more(now: dict[str, int], before: dict[str, int]) -> None:
    assert all(now[event] > before[event] for event in COUNTERS)


def runs_as(closid: int, rmid: int) -> None:
    assert processor.association(0) == (closid, rmid)


def test_all_its_tasks_go_along_and_no_other(fs: Filesystem) -> None:
    with sleepers(50) as watched, sleepers(2) as unwatched:
        enter(fs, *watched.tids)
        tasks.move(fs, "one", unwatched.tids)
        groups.move_monitoring_group(fs, "vm", "one", "two")
        assert tasks.read_tasks(fs, TARGET) == tasks.read_tasks(fs, "two") == watched.tids
        assert tasks.read_tasks(fs, "one") == unwatched.tids
        for tid in watched.tids:
            with open(f"/proc/{tid}/cpu_resctrl_groups", encoding="ascii") as file:
                assert file.read().split() == ["res:two", "mon:vm"]
        groups.remove(fs, "one")
        assert tasks.read_tasks(fs, TARGET) == watched.tids


def test_a_refused_move_leaves_group_and_tasks_where_they_were(fs: Filesystem) -> None:
    with sleepers(3) as watched:
        enter(fs, *watched.tids)
        fs.write("one/cpus_list", "1")
        fs.write(f"{SOURCE}/cpus_list", "1")
        with pytest.raises(exceptions.CommandFailed, match=r"EPERM.*monitors CPUs"):
            groups.move_monitoring_group(fs, "vm", "one", "two")
        assert tasks.read_tasks(fs, SOURCE) == watched.tids
        assert os.listdir(fs.path("two/mon_groups")) == []
