# SPDX-License-Identifier: Apache-2.0
"""Monitoring groups: made, moved, removed, and whose tasks they take."""

from __future__ import annotations

import pytest

from tests.conformance import needs
from tests.conformance.answer import done, refused

pytestmark = needs.MONITORING

ANOTHER = "Can't move task to different control group\n"


@pytest.fixture
def family(rdt):
    """The control groups ``g`` and ``h``, and in ``g`` the monitoring groups ``m`` and ``n``."""
    for group in ("g", "h", "g/mon_groups/m", "g/mon_groups/n"):
        rdt.group(group)
    return rdt


@pytest.fixture
def full(rdt):
    """A machine whose RMIDs are all taken: those of a control group and of the default group's monitoring groups."""
    rdt.group("g")
    for number in range(rdt.profile.num_rmids - 2):
        rdt.group(f"mon_groups/m{number}")
    return rdt


def monitored_task(family, tasks):
    """A task of ``g`` that ``m`` monitors."""
    task = tasks.start("task")
    for path in ("g/tasks", "g/mon_groups/m/tasks"):
        assert family.write(path, f"{task}\n") == done()
    return task


def test_a_monitoring_group_is_a_folder_with_these_files(family):
    assert family.ls("g/mon_groups/m") == ["cpus", "cpus_list", "mon_data", "tasks"]
    assert family.permissions("g/mon_groups/m") == "40755"
    assert family.permissions("g/mon_groups/m/tasks") == "100644"


def test_the_default_group_has_monitoring_groups_too(rdt):
    rdt.group("mon_groups/m")
    assert rdt.ls("mon_groups") == ["m"]
    assert rdt.ls("mon_groups/m") == ["cpus", "cpus_list", "mon_data", "tasks"]


def test_monitoring_groups_are_made_in_mon_groups_only(family):
    assert family.mkdir("g/m").errno == "EPERM"
    assert family.mkdir("g/mon_groups/m/x").errno == "EPERM"
    assert family.mkdir("g/mon_groups/m/mon_groups").errno == "EPERM"
    assert family.mkdir("g/mon_groups/m").errno == "EEXIST"
    assert family.mkdir("g/mon_groups/a\nb").errno == "EINVAL"


def test_no_monitoring_group_is_called_mon_groups(family):
    assert family.mkdir("g/mon_groups/mon_groups").errno == "EPERM"
    assert family.mkdir("mon_groups/mon_groups").errno == "EPERM"


def test_the_same_name_may_be_in_several_control_groups(family):
    family.group("h/mon_groups/m")
    family.group("mon_groups/m")
    assert family.ls("h/mon_groups") == ["m"]


def test_a_task_enters_through_the_control_group(family, tasks):
    task = tasks.start("task")
    told = f"{ANOTHER}Error while processing task {task}\n"
    assert family.write("g/mon_groups/m/tasks", f"{task}\n") == refused("EINVAL", told)
    assert family.write("g/tasks", f"{task}\n") == done()
    assert family.write("g/mon_groups/m/tasks", f"{task}\n") == done()
    assert family.tasks("g/mon_groups/m") == {task}
    assert family.tasks("g") == {task}


def test_a_task_is_in_one_monitoring_group(family, tasks):
    task = tasks.start("task")
    assert family.write("g/tasks", f"{task}\n") == done()
    for group in ("m", "n"):
        assert family.write(f"g/mon_groups/{group}/tasks", f"{task}\n") == done()
        assert family.tasks(f"g/mon_groups/{group}") == {task}
    assert family.tasks("g/mon_groups/m") == set()


def test_a_task_that_is_written_to_the_control_group_again_leaves_the_monitoring_group(family, tasks):
    task = monitored_task(family, tasks)
    assert family.write("g/tasks", f"{task}\n") == done()
    assert family.tasks("g/mon_groups/m") == set()
    assert family.tasks("g") == {task}


def test_a_task_of_another_control_group_is_refused(family, tasks):
    task = tasks.start("task")
    assert family.write("h/tasks", f"{task}\n") == done()
    told = f"{ANOTHER}Error while processing task {task}\n"
    assert family.write("g/mon_groups/m/tasks", f"{task}\n") == refused("EINVAL", told)
    family.group("mon_groups/m")
    assert family.write("mon_groups/m/tasks", f"{task}\n") == refused("EINVAL", told)


def test_the_default_groups_monitoring_groups_take_its_tasks(rdt, tasks):
    task = tasks.start("task")
    rdt.group("mon_groups/m")
    assert rdt.write("mon_groups/m/tasks", f"{task}\n") == done()
    assert rdt.tasks("mon_groups/m") == {task}
    assert task in rdt.tasks()
    assert rdt.write("tasks", f"{task}\n") == done()
    assert rdt.tasks("mon_groups/m") == set()


def test_a_removed_monitoring_groups_tasks_stay_in_the_control_group(family, tasks):
    task = monitored_task(family, tasks)
    assert family.rmdir("g/mon_groups/m").errno is None
    assert family.tasks("g") == {task}
    assert family.ls("g/mon_groups") == ["n"]


def test_a_removed_control_group_takes_its_monitoring_groups_along(family, tasks):
    task = monitored_task(family, tasks)
    assert family.rmdir("g").errno is None
    assert task in family.tasks()
    family.group("g")
    assert family.ls("g/mon_groups") == []


def test_a_monitoring_group_can_be_renamed(family):
    assert family.rename("g/mon_groups/m", "g/mon_groups/o") == done()
    assert family.ls("g/mon_groups") == ["n", "o"]


def test_a_monitoring_group_moves_to_another_control_group_with_its_tasks(family, tasks):
    task = monitored_task(family, tasks)
    assert family.rename("g/mon_groups/m", "h/mon_groups/m") == done()
    assert family.tasks("h/mon_groups/m") == {task}
    assert family.tasks("h") == {task}
    assert family.tasks("g") == set()
    assert family.ls("g/mon_groups") == ["n"]


def test_a_monitoring_group_keeps_its_rmid_when_it_moves(bare):
    assert bare.mount("debug") is None
    for group in ("g", "h", "g/mon_groups/m"):
        bare.group(group)
    before = bare.read("g/mon_groups/m/mon_hw_id")
    assert bare.rename("g/mon_groups/m", "h/mon_groups/x") == done()
    assert bare.read("h/mon_groups/x/mon_hw_id") == before
    assert "ctrl_hw_id" not in bare.ls("h/mon_groups/x")


def test_a_monitoring_group_moves_to_the_default_group_and_back(family, tasks):
    task = monitored_task(family, tasks)
    assert family.rename("g/mon_groups/m", "mon_groups/m") == done()
    assert task in family.tasks()
    assert family.tasks("mon_groups/m") == {task}
    assert family.rename("mon_groups/m", "g/mon_groups/m") == done()
    assert family.tasks("g") == {task}


def test_a_name_that_is_taken_is_refused(family):
    family.group("h/mon_groups/m")
    assert family.rename("g/mon_groups/m", "g/mon_groups/n").errno == "EEXIST"
    assert family.rename("g/mon_groups/m", "h/mon_groups/m").errno == "EEXIST"
    assert family.ls("g/mon_groups") == ["m", "n"]


@pytest.mark.parametrize(
    "reason, renames",
    [
        pytest.param(
            "Source must be a MON group\n",
            [("g", "k"), ("g/mon_groups", "g/k"), ("g/mon_data", "g/k"), ("g/mon_data/mon_L3_00", "g/mon_data/k")],
            id="only monitoring groups move",
        ),
        pytest.param(
            # The kernel's text has no newline.
            "Source and destination must be directories",
            [("g/tasks", "g/tasks2"), ("g/mon_groups/m/tasks", "g/mon_groups/k")],
            id="files do not move",
        ),
        pytest.param(
            "Destination must be a mon_groups subdirectory\n",
            [
                ("g/mon_groups/m", target)
                for target in ("m", "h/m", "h/mon_data/m", "g/mon_groups/n/m", "h/mon_groups/mon_groups")
            ],
            id="they move into mon_groups only",
        ),
    ],
)
def test_a_rename_that_moves_no_monitoring_group_is_refused(family, reason, renames):
    for old, new in renames:
        assert family.rename(old, new) == refused("EPERM", reason), f"{old} to {new}"


def test_a_monitoring_group_with_cpus_stays_where_it_is(family):
    assert family.write("g/cpus_list", "1\n").errno is None
    assert family.write("g/mon_groups/m/cpus_list", "1\n").errno is None
    stays = refused("EPERM", "Cannot move a MON group that monitors CPUs\n")
    assert family.rename("g/mon_groups/m", "h/mon_groups/m") == stays
    assert family.rename("g/mon_groups/m", "g/mon_groups/o") == done()
    assert family.cpus("g/mon_groups/o") == "1"


def test_there_are_as_many_groups_as_rmids(full):
    for path in ("mon_groups/more", "h"):
        answer = full.mkdir(path)
        assert answer.errno == "ENOSPC"
        assert answer.status.endswith("Out of RMIDs\n")
    assert "more" not in full.ls("mon_groups")
    assert "h" not in full.ls()


def test_an_rmid_that_was_just_freed_is_busy(full):
    with full.lasting_limbo():
        assert full.rmdir("mon_groups/m5").errno is None
        more = full.mkdir("mon_groups/more", at_once=True)
    assert more.errno == "EBUSY"
    assert more.status.endswith("Out of RMIDs\n")
