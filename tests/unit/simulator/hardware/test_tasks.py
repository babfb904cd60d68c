# SPDX-License-Identifier: Apache-2.0
"""New tasks inherit, dead ones are forgotten, and a reused id is another task."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.simulator.table import ProcessTable
from vmqos.simulator.hardware.tasks import DEFAULT, Membership


def _has_class(closid: int) -> Callable[[int, int], bool]:
    return lambda other, rmid: other == closid


def test_a_fork_takes_after_its_parent_and_a_thread_after_its_leader() -> None:
    table = ProcessTable()
    members = Membership(table)
    parent = table.start(10)
    members.settle()
    members.assign(parent, 1, 5)
    table.start(11, parent=10)
    table.start(12, tgid=10)
    table.start(13, parent=11)
    members.settle()
    assert [members.of(tid) for tid in (11, 12, 13)] == [(1, 5)] * 3


def test_nobody_inherits_what_the_creator_gets_later() -> None:
    table = ProcessTable()
    members = Membership(table)
    leader = table.start(10)
    table.start(11, tgid=10)
    members.settle()
    members.assign(leader, 1, 5)
    members.settle()
    assert members.of(11) == DEFAULT


def test_a_thread_stays_where_it_is_when_its_leader_moves() -> None:
    table = ProcessTable()
    members = Membership(table)
    leader = table.start(10)
    members.settle()
    members.assign(leader, 1, 5)
    table.start(11, tgid=10)
    members.settle()
    members.assign(leader, *DEFAULT)
    assert members.members(lambda closid, rmid: closid == 1) == [11]


def test_a_reused_id_is_another_task() -> None:
    table = ProcessTable()
    members = Membership(table)
    task = table.start(10)
    members.settle()
    members.assign(task, 1, 5)
    table.end(10)
    table.start(10)
    assert members.members(lambda closid, rmid: closid == 1) == []


def test_a_dead_task_is_forgotten() -> None:
    table = ProcessTable()
    members = Membership(table)
    for tid in (10, 11):
        task = table.start(tid)
        members.settle()
        members.assign(task, 1, 5)
    table.end(10)
    assert members.members(lambda closid, rmid: closid == 1) == [11]
    assert list(members.assignments()) == [11]
    table.end(11)
    assert members.members(lambda closid, rmid: closid == 0) == []
    assert not members.assignments()


def test_the_dead_of_a_large_group_are_forgotten_without_asking_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ProcessTable()
    members = Membership(table)
    for tid in range(10, 2000):
        task = table.start(tid)
        members.settle()
        members.assign(task, 1, 5)
    for tid in range(20, 2000, 2):
        table.end(tid)
    monkeypatch.setattr(table, "alive", lambda tid: pytest.fail("asked for one"))
    expected = [*range(10, 20), *range(21, 2000, 2)]
    assert members.members(lambda closid, rmid: closid == 1) == expected
    assert sorted(members.assignments()) == expected


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 3)), max_size=30))
def test_every_task_is_in_one_class(moves: list[tuple[int, int]]) -> None:
    table = ProcessTable()
    members = Membership(table)
    for tid in range(1, 21):
        table.start(tid)
    members.settle()
    for tid, closid in moves:
        members.assign(table.tasks[tid], closid, closid)
    listed = [tid for closid in range(4) for tid in members.members(_has_class(closid))]
    assert sorted(listed) == list(range(1, 21))
