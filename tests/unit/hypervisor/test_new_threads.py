# SPDX-License-Identifier: Apache-2.0
"""Whether a process's new threads are noticed; the process is the test's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from vmqos.hypervisor import processes
from vmqos.hypervisor.exceptions import ProcessVanished
from vmqos.hypervisor.model import Process
from vmqos.hypervisor.new_threads import NewThreads


@pytest.fixture
def begin() -> Iterator[Callable[[], int]]:
    """Starts a thread that lives as long as the test; its id."""
    done, started = threading.Event(), []

    def start() -> int:
        thread = threading.Thread(target=done.wait, daemon=True)
        thread.start()
        started.append(thread)
        assert thread.native_id is not None
        return thread.native_id

    yield start
    done.set()
    for thread in started:
        thread.join()


@pytest.fixture
def watched() -> NewThreads:
    return NewThreads(processes.of_pid(os.getpid()), processes.tasks(os.getpid()))


def test_a_thread_that_was_there_is_none(begin: Callable[[], int]) -> None:
    begin()
    assert not NewThreads(processes.of_pid(os.getpid()), processes.tasks(os.getpid())).look()


def test_a_new_thread_is_told_of_twice(watched: NewThreads, begin: Callable[[], int]) -> None:
    watched.look()
    thread = begin()
    assert [watched.look() for _ in range(4)] == [{thread}, {thread}, set(), set()]


def test_threads_that_follow_each_other_are_told_of_twice_each(watched: NewThreads, begin: Callable[[], int]) -> None:
    first = begin()
    assert watched.look() == {first}
    second = begin()
    assert watched.look() == {first, second}
    assert watched.look() == {second}
    assert not watched.look()


def test_threads_are_listed_only_when_their_number_changes(
    watched: NewThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.look()
    monkeypatch.setattr(processes, "tasks_of", lambda descriptor, pid: pytest.fail("the threads were listed"))
    assert not watched.look()


def test_a_process_that_is_gone_says_so() -> None:
    with pytest.raises(ProcessVanished):
        NewThreads(Process(99999999, 1), frozenset({1})).look()
