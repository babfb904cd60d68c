# SPDX-License-Identifier: Apache-2.0
"""vmqos.resctrl.tasks on a mounted resctrl, with real tasks."""

import os

import pytest

from tests.functional.resctrl_client.mounted import dead_tid, impossible_tids, retry, sleepers
from vmqos.resctrl import exceptions, groups, tasks


@pytest.fixture
def group(fs):
    retry(lambda: groups.create(fs, "vmqos.g"), exceptions.RmidsInLimbo)
    return "vmqos.g"


@pytest.fixture
def monitoring(fs, group):
    retry(lambda: groups.create_monitoring_group(fs, group, "vmqos.m"), exceptions.RmidsInLimbo)
    return groups.monitoring_directory(group, "vmqos.m")


def test_every_task_starts_in_the_default_group(fs, three_sleepers):
    assert {1, os.getpid()} | three_sleepers.tids <= tasks.read_tasks(fs, "")


def test_moved_tasks_are_in_the_group_and_nowhere_else(fs, group, three_sleepers):
    assert tasks.move(fs, group, three_sleepers.tids) == three_sleepers.tids
    assert tasks.read_tasks(fs, group) == three_sleepers.tids
    assert not tasks.read_tasks(fs, "") & three_sleepers.tids
    tasks.move(fs, "", three_sleepers.tids)
    assert tasks.read_tasks(fs, group) == set()
    assert tasks.read_tasks(fs, "") >= three_sleepers.tids


def test_moving_a_leader_leaves_its_threads(fs, group, three_sleepers):
    tasks.move(fs, group, {three_sleepers.process.pid})
    assert tasks.read_tasks(fs, group) == {three_sleepers.process.pid}


def test_the_dead_are_told_and_the_living_around_them_moved(fs, group, three_sleepers):
    dead = {dead_tid()}
    with sleepers(1) as later:
        living = three_sleepers.tids | later.tids
        dead |= impossible_tids(3)
        assert tasks.move(fs, group, living | dead) == living
        assert tasks.read_tasks(fs, group) == living


def test_one_dead_task_is_no_error(fs, group):
    dead = dead_tid()
    assert tasks.move(fs, group, {dead}) == frozenset()


def test_only_dead_tasks_are_no_error_and_no_endless_loop(fs, group):
    dead = impossible_tids(200)
    assert tasks.move(fs, group, dead) == frozenset()


def test_more_tasks_than_one_write_holds_are_all_moved(fs, group):
    with sleepers(1300) as many:
        dead = impossible_tids(2)
        assert tasks.move(fs, group, many.tids | dead) == many.tids
        assert tasks.read_tasks(fs, group) == many.tids


def test_the_kernel_takes_lists_and_the_client_stays_with_them(fs, group, three_sleepers):
    tasks.move(fs, group, three_sleepers.tids)
    tasks.move(fs, group, three_sleepers.tids | impossible_tids(1))
    assert fs.takes_task_lists


def test_a_monitoring_group_takes_tasks_of_its_control_group_only(fs, group, monitoring, three_sleepers):
    with pytest.raises(exceptions.DifferentControlGroup) as caught:
        tasks.move(fs, monitoring, three_sleepers.tids)
    assert "different control group" in caught.value.last_cmd_status
    assert fs.takes_task_lists
    tasks.move(fs, group, three_sleepers.tids)
    tasks.move(fs, monitoring, three_sleepers.tids)
    assert tasks.read_tasks(fs, monitoring) == three_sleepers.tids
    assert tasks.read_tasks(fs, group) == three_sleepers.tids


def test_a_task_that_enters_the_control_group_again_leaves_the_monitoring_group(fs, group, monitoring, three_sleepers):
    for directory in (group, monitoring, group):
        tasks.move(fs, directory, three_sleepers.tids)
    assert tasks.read_tasks(fs, monitoring) == set()


def test_a_group_that_is_removed_before_the_move_has_vanished(fs, group, three_sleepers):
    groups.remove(fs, group)
    with pytest.raises(exceptions.Vanished):
        tasks.move(fs, group, three_sleepers.tids)
    assert tasks.read_tasks(fs, "") >= three_sleepers.tids
