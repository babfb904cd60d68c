# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.tasks on stand-ins that refuse as kernels do.

How real tasks move is shown in tests/functional/resctrl_client; here are the cases that no kernel at hand produces on
demand: old kernels, other writers' messages, many dead tasks at once.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.resctrl import exceptions, tasks
from vmqos.resctrl.filesystem import Filesystem

TIDS = st.sets(st.integers(min_value=1, max_value=4194304), max_size=1500)


class Kernel(Filesystem):
    """Takes tasks as ``rdtgroup_tasks_write`` does since Linux 6.7: up to the first that fails."""

    def __init__(self, dead=(), foreign=()):
        super().__init__("/kernel")
        self.dead, self.foreign = frozenset(dead), frozenset(foreign)
        self.inside, self.writes = set(), []

    def write(self, relative, text):
        assert len(text) + 1 <= 4095
        self.writes.append(text)
        for tid in map(int, text.split(",")):
            if tid in self.dead:
                self.fail(text, "ESRCH", f"No task {tid}\nError while processing task {tid}")
            if tid in self.foreign:
                status = f"Can't move task to different control group\nError while processing task {tid}"
                self.fail(text, "EINVAL", status)
            self.inside.add(tid)

    def fail(self, text, errno_name, status):
        raise exceptions.CommandFailed(
            action="write", path="/kernel/g/tasks", data=text, errno_name=errno_name, last_cmd_status=status
        )


class OldKernel(Kernel):
    """Linux before 6.7: a list is EINVAL, and the status is still that of the command before."""

    status = ""

    def write(self, relative, text):
        if "," in text:
            self.writes.append(text)
            self.fail(text, "EINVAL", self.status)
        super().write(relative, text)

    def fail(self, text, errno_name, status):
        super().fail(text, errno_name, status.partition("\nError while")[0])


class Interrupted(Kernel):
    """Another process's command overwrites the status between the failed write and the look at it."""

    def __init__(self, dead, status):
        super().__init__(dead)
        self.status = status

    def fail(self, text, errno_name, status):
        super().fail(text, errno_name, self.status)


@given(TIDS, st.data())
def test_the_living_are_moved_and_the_dead_are_told(tids, data):
    dead = data.draw(st.sets(st.sampled_from(sorted(tids)))) if tids else set()
    kernel = Kernel(dead)
    assert tasks.move(kernel, "g", tids) == tids - dead
    assert kernel.inside == tids - dead
    assert len(kernel.writes) <= len(tids)


@given(TIDS)
def test_as_few_writes_as_possible_are_made(tids):
    kernel = Kernel()
    tasks.move(kernel, "g", tids)
    size = len(",".join(map(str, tids)))
    assert len(kernel.writes) <= size // 4088 + 1
    assert sorted(tid for text in kernel.writes for tid in map(int, text.split(","))) == sorted(tids)


@pytest.mark.parametrize(("digits", "count"), [(7, 511), (7, 512), (7, 513), (3, 900), (4, 819), (4, 820)])
def test_a_write_is_filled_to_its_last_byte(digits, count):
    kernel = Kernel()
    tasks.move(kernel, "g", range(10 ** (digits - 1), 10 ** (digits - 1) + count))
    fitting = 4095 // (digits + 1)
    assert [text.count(",") + 1 for text in kernel.writes] == [fitting] * (count // fitting) + (
        [count % fitting] if count % fitting else []
    )


@given(TIDS, st.data(), st.sampled_from(["", "No task 5", "Can't move task to different control group"]))
def test_an_old_kernel_gets_one_task_a_write(tids, data, status):
    dead = data.draw(st.sets(st.sampled_from(sorted(tids)))) if tids else set()
    kernel = OldKernel(dead)
    kernel.status = status
    assert tasks.move(kernel, "g", tids) == tids - dead
    assert kernel.inside == tids - dead


def test_an_old_kernel_is_asked_once_only():
    kernel = OldKernel()
    tasks.move(kernel, "g", {1, 2, 3})
    assert not kernel.takes_task_lists
    tasks.move(kernel, "g", {4, 5})
    assert kernel.writes == ["1,2,3", "1", "2", "3", "4", "5"]


def test_a_kernel_that_takes_lists_is_not_mistaken_for_an_old_one():
    class PseudoLocked(Kernel):
        def write(self, relative, text):
            self.fail(text, "EINVAL", "Pseudo-locking in progress")

    kernel = PseudoLocked()
    with pytest.raises(exceptions.CommandFailed, match="Pseudo-locking in progress"):
        tasks.move(kernel, "g", {1, 2})
    assert kernel.takes_task_lists


@pytest.mark.parametrize("status", ["", "Out of CLOSIDs", "No task 77\nError while processing task 77"])
@given(st.sets(st.integers(min_value=100, max_value=999), min_size=2), st.data())
def test_a_status_that_names_no_task_of_the_list_is_not_believed(status, tids, data):
    dead = data.draw(st.sets(st.sampled_from(sorted(tids)), min_size=1))
    kernel = Interrupted(dead, status)
    assert tasks.move(kernel, "g", tids) == tids - dead
    assert kernel.inside == tids - dead


def test_a_task_of_another_control_group_is_told_as_that():
    kernel = Kernel(foreign={2})
    with pytest.raises(exceptions.DifferentControlGroup, match="control group first"):
        tasks.move(kernel, "mon_groups/m", {1, 2, 3})
    assert kernel.inside == {1}
    assert kernel.takes_task_lists


@pytest.mark.parametrize("tids", [{2}, {2, 3}], ids=["alone", "in a list"])
def test_any_other_refusal_is_told_with_the_kernels_reason(tids):
    class Forbidden(Kernel):
        def write(self, relative, text):
            self.fail(text, "EPERM", "No permission to move task 2\nError while processing task 2")

    with pytest.raises(exceptions.CommandFailed, match="No permission to move task 2"):
        tasks.move(Forbidden(), "g", tids)


@pytest.mark.parametrize("tid", [0, -1])
def test_an_id_that_would_move_the_writer_never_reaches_the_kernel(tid):
    kernel = Kernel()
    with pytest.raises(ValueError, match=str(tid)):
        tasks.move(kernel, "g", {5, tid})
    assert kernel.writes == []


def test_no_task_is_no_write():
    kernel = Kernel()
    assert tasks.move(kernel, "g", []) == frozenset()
    assert kernel.writes == []


@pytest.mark.parametrize(("text", "tids"), [("", set()), ("7\n", {7}), ("1\n22\n333\n", {1, 22, 333})])
def test_the_tasks_of_a_group_are_read(tmp_path, text, tids):
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "tasks").write_text(text)
    (tmp_path / "tasks").write_text("1\n")
    assert tasks.read_tasks(Filesystem(str(tmp_path)), "g") == tids
    assert tasks.read_tasks(Filesystem(str(tmp_path)), "") == {1}


@pytest.mark.parametrize("text", ["all\n", "1\n\xff\n", "9" * 5000])
def test_a_list_of_tasks_that_holds_anything_else_is_an_error_of_this_package(tmp_path, text):
    (tmp_path / "tasks").write_text(text)
    with pytest.raises(exceptions.UnexpectedContent, match="no list of tasks"):
        tasks.read_tasks(Filesystem(str(tmp_path)), "")


def test_the_tasks_of_a_group_that_is_gone_can_not_be_read(tmp_path):
    with pytest.raises(exceptions.Vanished):
        tasks.read_tasks(Filesystem(str(tmp_path)), "gone")
