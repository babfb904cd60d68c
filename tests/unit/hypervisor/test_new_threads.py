# SPDX-License-Identifier: Apache-2.0
"""Whether a process's new threads are noticed; the process has no thread but those that a test begins."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from vmqos.hypervisor import processes
from vmqos.hypervisor.exceptions import ProcessVanished
from vmqos.hypervisor.model import Process
from vmqos.hypervisor.vm_tasks import NewThreads

BEGINS_THREADS = """
import sys, threading
for line in sys.stdin:
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    print(thread.native_id, flush=True)
"""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """A process of one thread, which begins another one for each line that it reads, and tells its id."""
    command = [sys.executable, "-c", BEGINS_THREADS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        yield child
        child.kill()


@pytest.fixture
def begin(process: subprocess.Popen[str]) -> Callable[[], int]:
    """Starts a thread that lives as long as the test; its id."""

    def start() -> int:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("another\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    return start


@pytest.fixture
def watched(process: subprocess.Popen[str]) -> NewThreads:
    return NewThreads(processes.of_pid(process.pid), processes.tasks(process.pid))


def test_a_thread_that_was_there_is_none(process: subprocess.Popen[str], begin: Callable[[], int]) -> None:
    begin()
    assert not NewThreads(processes.of_pid(process.pid), processes.tasks(process.pid)).look()


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
    monkeypatch.setattr(processes, "tasks", lambda pid, descriptor: pytest.fail("the threads were listed"))
    assert not watched.look()


def test_a_process_that_is_gone_says_so() -> None:
    with pytest.raises(ProcessVanished):
        NewThreads(Process(99999999, 1), frozenset({1})).look()
