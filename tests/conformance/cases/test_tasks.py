# SPDX-License-Identifier: Apache-2.0
"""``tasks`` of control groups: how tasks come into them, and where they go."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.conformance.answer import done, invalid, refused
from tests.conformance.tasks import Tasks

NOBODY = 4194305
"""An id above the greatest that any kernel gives out (``PID_MAX_LIMIT``)."""


def test_every_task_starts_in_the_default_group(two, tasks):
    task, myself = tasks.start("task"), tasks.myself()
    assert {task, myself} <= two.tasks()
    assert two.read("g/tasks") == ""


def test_a_task_is_in_one_group(two, tasks):
    task = tasks.start("task")
    for group in ("g", "h"):
        assert two.write(f"{group}/tasks", f"{task}\n") == done()
        assert two.tasks(group) == {task}
        assert task not in two.tasks()
    assert two.tasks("g") == set()
    assert two.write("tasks", f"{task}\n") == done()
    assert task in two.tasks()
    assert two.tasks("h") == set()


def test_a_group_lists_one_id_a_line_in_ascending_order(two, tasks):
    started = [tasks.start(name) for name in ("a", "b", "c")]
    assert two.write("g/tasks", ",".join(map(str, reversed(started)))) == done()
    assert two.read("g/tasks") == "".join(f"{task}\n" for task in sorted(started))


def test_ids_may_be_joined_by_commas(two, tasks):
    a, b, c = (tasks.start(name) for name in ("a", "b", "c"))
    assert two.write("g/tasks", f"{a},{b}\n") == done()
    assert two.write("g/tasks", f"{c},") == done()
    assert two.tasks("g") == {a, b, c}
    assert two.write("h/tasks", f" {a} ,\t{b}\n") == done()
    assert two.tasks("h") == {a, b}
    assert two.write("h/tasks", f"{c},\n") == done()
    assert two.tasks("h") == {a, b, c}
    assert two.write("h/tasks", f"{c}, \n") == invalid("Task list parsing error pid ")


def test_an_id_may_be_written_in_any_way_that_c_knows(two, tasks):
    for number, form in enumerate(("{}", "{}\n", " {} \n", "{:#x}\n", "+{}\n", "0{:o}\n", "{}\0x\n")):
        task = tasks.start(f"task{number}")
        assert two.write("g/tasks", form.format(task)) == done()
        assert task in two.tasks("g")


def test_nothing_is_nobody(two):
    for text in ("\n", "\n\n"):
        assert two.write("g/tasks", text) == done()
    assert two.read("g/tasks") == ""


def test_blanks_and_newlines_do_not_separate(two, tasks):
    a, b = tasks.start("a"), tasks.start("b")
    for text in (f"{a} {b}", f"{a}\n{b}"):
        assert two.write("g/tasks", f"{text}\n") == invalid(f"Task list parsing error pid {text}")
    assert two.tasks("g") == set()


def test_what_is_no_id_is_told(two, tasks):
    for text in ("abc", "1.5", "99999999999", "0x", "1;2", "--1"):
        assert two.write("g/tasks", f"{text}\n") == invalid(f"Task list parsing error pid {text}")
    assert two.write("g/tasks", " \n") == invalid("Task list parsing error pid ")
    task = tasks.start("task")
    assert two.write("g/tasks", f",{task}\n").errno == "EINVAL"
    assert two.read("g/tasks") == ""


def test_an_id_is_not_negative(two):
    assert two.write("g/tasks", "-1\n") == invalid("Invalid pid -1")
    assert two.write("g/tasks", "-0x10\n") == invalid("Invalid pid -16")


def test_zero_is_the_writer(two):
    command = f"echo 0 > {two.root}/g/tasks && grep -qx $$ {two.root}/g/tasks"
    assert two.do("shell", "g/tasks", lambda path: subprocess.run(["sh", "-c", command], check=True)) == done()


def test_who_is_not_there_is_told(two):
    told = f"No task {NOBODY}\nError while processing task {NOBODY}\n"
    assert two.write("g/tasks", f"{NOBODY}\n") == refused("ESRCH", told)


def test_a_dead_task_is_not_there(two, tasks):
    task = tasks.start("task")
    tasks.reap(task)
    told = f"No task {task}\nError while processing task {task}\n"
    assert two.write("g/tasks", f"{task}\n") == refused("ESRCH", told)


def test_the_first_failure_ends_a_list_and_those_before_stay_moved(two, tasks):
    a, b = tasks.start("a"), tasks.start("b")
    told = f"No task {NOBODY}\nError while processing task {NOBODY}\n"
    assert two.write("g/tasks", f"{a},{NOBODY},{b}\n") == refused("ESRCH", told)
    assert two.tasks("g") == {a}
    assert two.write("h/tasks", f"{a},x,{b}\n").errno == "EINVAL"
    assert two.tasks("h") == {a}


def test_a_task_that_is_there_already_is_taken(two, tasks):
    task = tasks.start("task")
    for _ in range(2):
        assert two.write("g/tasks", f"{task}\n") == done()
    assert two.write("g/tasks", f"{task},{task}\n") == done()
    assert two.tasks("g") == {task}


def test_a_zombie_still_shows(two, tasks):
    task = tasks.start("task")
    assert two.write("g/tasks", f"{task}\n") == done()
    tasks.kill(task)
    assert two.tasks("g") == {task}
    tasks.reap(task)
    assert two.tasks("g") == set()


def test_a_zombie_can_be_moved(two, tasks):
    task = tasks.start("task")
    tasks.kill(task)
    assert two.write("g/tasks", f"{task}\n") == done()
    assert two.tasks("g") == {task}


def test_a_group_outlives_its_last_task(two, tasks):
    task = tasks.start("task")
    assert two.write("g/tasks", f"{task}\n") == done()
    tasks.reap(task)
    assert "g" in two.ls()
    assert two.read("g/tasks") == ""


def test_a_removed_groups_tasks_are_the_default_groups(two, tasks):
    a, b = tasks.start("a"), tasks.start("b")
    assert two.write("g/tasks", f"{a},{b}\n") == done()
    assert two.rmdir("g").errno is None
    assert {a, b} <= two.tasks()
    assert two.tasks("h") == set()


def test_a_new_group_of_the_same_name_does_not_get_its_tasks_back(two, tasks):
    task = tasks.start("task")
    assert two.write("g/tasks", f"{task}\n") == done()
    assert two.rmdir("g").errno is None
    two.group("g")
    assert two.read("g/tasks") == ""


@pytest.mark.parametrize("make", [Tasks.start, Tasks.start_thread], ids=["process", "thread"])
def test_what_a_task_makes_is_in_its_group(two, tasks, make):
    myself = tasks.myself()
    assert two.write("g/tasks", f"{myself}\n") == done()
    try:
        made = make(tasks, "made")
        assert two.tasks("g") == {myself, made}
    finally:
        two.write("tasks", f"{myself}\n")
    assert two.tasks("g") == {made}


def test_a_process_and_its_thread_are_moved_one_without_the_other(two, tasks):
    myself, thread = tasks.myself(), tasks.start_thread("thread")
    for moved, other in ((myself, thread), (thread, myself)):
        assert two.write("g/tasks", f"{moved}\n") == done()
        assert two.tasks("g") == {moved}
        assert other in two.tasks()
        assert two.write("tasks", f"{moved}\n") == done()


def test_a_kernel_thread_can_be_moved(two, tasks):
    task = tasks.kernel_thread()
    assert two.write("g/tasks", f"{task}\n") == done()
    assert two.read("g/tasks") == f"{task}\n"
    assert two.write("tasks", f"{task}\n") == done()


def test_more_than_a_page_is_too_big(two, tasks):
    task = tasks.start("task")
    assert two.write("g/tasks", " " * 4096 + f"{task}\n") == refused("E2BIG")
    assert two.tasks("g") == set()


def test_a_page_is_read_to_its_end(two, tasks):
    task = tasks.start("task")
    assert two.write("g/tasks", " " * 4000 + f"{task}\n") == done()
    assert two.tasks("g") == {task}


def test_an_ordinary_user_moves_only_his_own_tasks(two):
    two.do("chown", "g/tasks", lambda path: os.chown(path, 1000, -1))

    def as_user(command):
        user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-c", command]
        return lambda path: subprocess.run(user, cwd=two.root, check=True, capture_output=True)

    assert two.do("his own", "g/tasks", as_user("echo $$ > g/tasks")) == done()
    with pytest.raises(subprocess.CalledProcessError):
        two.do("another's", "g/tasks", as_user("echo 1 > g/tasks"))
    assert two.status == "No permission to move task 1\nError while processing task 1\n"
    with pytest.raises(subprocess.CalledProcessError):
        two.do("in the default group", "tasks", as_user("echo $$ > tasks"))
