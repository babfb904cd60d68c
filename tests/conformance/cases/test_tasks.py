# SPDX-License-Identifier: Apache-2.0
"""``tasks`` of control groups: how tasks come into them, and where they go."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.conformance.answer import Answer, done, invalid, refused

NOBODY = 4194305
"""An id above the greatest that any kernel gives out (``PID_MAX_LIMIT``)."""


@pytest.fixture
def two(rdt):
    """Two groups, ``g`` and ``h``."""
    rdt.group("g")
    rdt.group("h")
    return rdt


def test_every_task_starts_in_the_default_group(two):
    task, myself = two.start("task"), two.myself()
    assert {task, myself} <= two.tasks()
    assert two.read("g/tasks") == ""


def test_a_task_is_in_one_group(two):
    task = two.start("task")
    for group in ("g", "h"):
        assert two.write(f"{group}/tasks", f"{task}\n") == done()
        assert two.tasks(group) == {task}
        assert task not in two.tasks()
    assert two.tasks("g") == set()
    assert two.write("tasks", f"{task}\n") == done()
    assert task in two.tasks()
    assert two.tasks("h") == set()


def test_a_group_lists_one_id_a_line_in_ascending_order(two):
    tasks = [two.start(name) for name in ("a", "b", "c")]
    assert two.write("g/tasks", ",".join(map(str, reversed(tasks)))) == done()
    assert two.read("g/tasks") == "".join(f"{task}\n" for task in sorted(tasks))


def test_ids_may_be_joined_by_commas(two):
    a, b, c = (two.start(name) for name in ("a", "b", "c"))
    assert two.write("g/tasks", f"{a},{b}\n") == done()
    assert two.write("g/tasks", f"{c},") == done()
    assert two.tasks("g") == {a, b, c}
    assert two.write("h/tasks", f" {a} ,\t{b}\n") == done()
    assert two.tasks("h") == {a, b}
    assert two.write("h/tasks", f"{c},\n") == done()
    assert two.tasks("h") == {a, b, c}
    assert two.write("h/tasks", f"{c}, \n") == invalid("Task list parsing error pid ")


def test_an_id_may_be_written_in_any_way_that_c_knows(two):
    for number, form in enumerate(("{}", "{}\n", " {} \n", "{:#x}\n", "+{}\n", "0{:o}\n", "{}\0x\n")):
        task = two.start(f"task{number}")
        assert two.write("g/tasks", form.format(task)) == done()
        assert task in two.tasks("g")


def test_nothing_is_nobody(two):
    for text in ("\n", "\n\n"):
        assert two.write("g/tasks", text) == done()
    assert two.read("g/tasks") == ""


def test_blanks_and_newlines_do_not_separate(two):
    a, b = two.start("a"), two.start("b")
    for text in (f"{a} {b}", f"{a}\n{b}"):
        answer = two.write("g/tasks", f"{text}\n")
        assert answer.errno == "EINVAL"
        assert answer.status == f"Task list parsing error pid {text}\n"
    assert two.tasks("g") == set()


def test_what_is_no_id_is_told(two):
    for text in ("abc", "1.5", "99999999999", "0x", "1;2", "--1"):
        assert two.write("g/tasks", f"{text}\n") == invalid(f"Task list parsing error pid {text}")
    assert two.write("g/tasks", " \n") == invalid("Task list parsing error pid ")
    task = two.start("task")
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


def test_a_dead_task_is_not_there(two):
    task = two.start("task")
    two.reap(task)
    told = f"No task {task}\nError while processing task {task}\n"
    assert two.write("g/tasks", f"{task}\n") == Answer("ESRCH", told)


def test_the_first_failure_ends_a_list_and_those_before_stay_moved(two):
    a, b = two.start("a"), two.start("b")
    told = f"No task {NOBODY}\nError while processing task {NOBODY}\n"
    assert two.write("g/tasks", f"{a},{NOBODY},{b}\n") == Answer("ESRCH", told)
    assert two.tasks("g") == {a}
    assert two.write("h/tasks", f"{a},x,{b}\n").errno == "EINVAL"
    assert two.tasks("h") == {a}


def test_a_task_that_is_there_already_is_taken(two):
    task = two.start("task")
    for _ in range(2):
        assert two.write("g/tasks", f"{task}\n") == done()
    assert two.write("g/tasks", f"{task},{task}\n") == done()
    assert two.tasks("g") == {task}


def test_a_zombie_still_shows(two):
    task = two.start("task")
    assert two.write("g/tasks", f"{task}\n") == done()
    two.kill(task)
    assert two.tasks("g") == {task}
    two.reap(task)
    assert two.tasks("g") == set()


def test_a_zombie_can_be_moved(two):
    task = two.start("task")
    two.kill(task)
    assert two.write("g/tasks", f"{task}\n") == done()
    assert two.tasks("g") == {task}


def test_a_group_outlives_its_last_task(two):
    task = two.start("task")
    assert two.write("g/tasks", f"{task}\n") == done()
    two.reap(task)
    assert "g" in two.ls()
    assert two.read("g/tasks") == ""


def test_a_removed_groups_tasks_are_the_default_groups(two):
    a, b = two.start("a"), two.start("b")
    assert two.write("g/tasks", f"{a},{b}\n") == done()
    assert two.rmdir("g").errno is None
    assert {a, b} <= two.tasks()
    assert two.tasks("h") == set()


def test_a_new_group_of_the_same_name_does_not_get_its_tasks_back(two):
    task = two.start("task")
    assert two.write("g/tasks", f"{task}\n") == done()
    assert two.rmdir("g").errno is None
    two.group("g")
    assert two.read("g/tasks") == ""


def test_a_child_inherits_its_parents_group(two):
    myself = two.myself()
    assert two.write("g/tasks", f"{myself}\n") == done()
    try:
        child = two.start("child")
        assert two.tasks("g") == {myself, child}
    finally:
        two.write("tasks", f"{myself}\n")
    assert two.tasks("g") == {child}


def test_a_thread_inherits_its_creators_group(two):
    myself = two.myself()
    assert two.write("g/tasks", f"{myself}\n") == done()
    try:
        thread = two.start_thread("thread")
        assert two.tasks("g") == {myself, thread}
    finally:
        two.write("tasks", f"{myself}\n")
    assert two.tasks("g") == {thread}


def test_moving_a_process_leaves_its_threads(two):
    myself, thread = two.myself(), two.start_thread("thread")
    assert two.write("g/tasks", f"{myself}\n") == done()
    assert two.tasks("g") == {myself}
    assert thread in two.tasks()
    assert two.write("tasks", f"{myself}\n") == done()


def test_a_thread_can_be_moved_alone(two):
    myself, thread = two.myself(), two.start_thread("thread")
    assert two.write("g/tasks", f"{thread}\n") == done()
    assert two.tasks("g") == {thread}
    assert myself in two.tasks()


def test_a_kernel_thread_can_be_moved(two):
    assert two.write("g/tasks", "2\n") == done()
    assert two.read("g/tasks") == "2\n"
    assert two.write("tasks", "2\n") == done()


def test_more_than_a_page_is_too_big(two):
    task = two.start("task")
    assert two.write("g/tasks", " " * 4096 + f"{task}\n") == refused("E2BIG")
    assert two.tasks("g") == set()


def test_a_page_is_read_to_its_end(two):
    task = two.start("task")
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
