# SPDX-License-Identifier: Apache-2.0
"""Waiting for the ends of processes."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import threading
from collections.abc import Iterator, Set

import pytest

from vmqos.agent.observe.process_ends import ProcessEnds
from vmqos.hypervisor import processes
from vmqos.hypervisor.model import Process

LONG = 30.0
SHORT = 0.05


class Told:
    """What was told of ends."""

    def __init__(self) -> None:
        self.told = threading.Semaphore(0)
        self.processes = set[Process]()
        self.ends = ProcessEnds(self._note)

    def _note(self, ended: Set[Process]) -> None:
        self.processes |= ended
        self.told.release()

    def within(self, seconds: float) -> bool:
        """Whether an end is told of in time."""
        return self.told.acquire(timeout=seconds)


@pytest.fixture
def told() -> Iterator[Told]:
    made = Told()
    yield made
    made.ends.close()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen(["sleep", "1000"])
    yield made
    made.kill()
    made.wait()


def test_an_end_is_told_once(told: Told, child: subprocess.Popen[bytes]) -> None:
    process = processes.of_pid(child.pid)
    told.ends.follow({process})
    assert not told.within(SHORT)
    child.kill()
    assert told.within(LONG) and told.processes == {process}
    told.ends.follow({process})
    assert not told.within(SHORT), "it is a zombie, and was told of"


def test_a_process_that_is_followed_later_is_told_of_too(told: Told, child: subprocess.Popen[bytes]) -> None:
    first = processes.of_pid(child.pid)
    told.ends.follow({first})
    with subprocess.Popen(["sleep", "1000"]) as second:
        told.ends.follow({first, processes.of_pid(second.pid)})
        second.kill()
        assert told.within(LONG)


def test_the_end_of_a_process_that_is_not_followed_any_more_is_no_news(
    told: Told, child: subprocess.Popen[bytes]
) -> None:
    told.ends.follow({processes.of_pid(child.pid)})
    told.ends.follow(set())
    child.kill()
    child.wait()
    assert not told.within(SHORT)


def test_processes_that_ended_before_they_were_followed_are_told_of_once(
    told: Told, child: subprocess.Popen[bytes]
) -> None:
    known = processes.of_pid(child.pid)
    with subprocess.Popen(["sleep", "1000"]) as second:
        zombie = processes.of_pid(second.pid)
        second.kill()
        os.waitid(os.P_PID, second.pid, os.WEXITED | os.WNOWAIT)
        gone = {Process(9999999, 1), Process(known.pid, known.start_time - 1), zombie}
        told.ends.follow({known, *gone})
        assert told.within(LONG) and told.processes == gone
        told.ends.follow({known, *gone})
        assert not told.within(SHORT), "they were told of"
    child.kill()
    assert told.within(LONG) and told.processes == {known, *gone}, "the one whose PID it was is another one"


_epoll = select.epoll


class FullEpoll:
    """An epoll of a user who has no watch left but the one for the end."""

    def __init__(self) -> None:
        self._epoll = _epoll()
        self._count = 0

    def register(self, descriptor: int, events: int) -> None:
        if self._count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._count += 1
        self._epoll.register(descriptor, events)

    def close(self) -> None:
        self._epoll.close()


def test_a_process_that_no_watch_is_left_for_is_left_out(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmqos.agent.observe.process_ends.select.epoll", FullEpoll)
    before = len(os.listdir("/proc/self/fd"))
    made = Told()
    made.ends.follow({processes.of_pid(child.pid)})
    made.ends.close()
    assert len(os.listdir("/proc/self/fd")) <= before, "what a test before this one left open may be closed meanwhile"


def test_a_thread_that_can_not_be_started_is_tried_again(
    told: Told, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    process = processes.of_pid(child.pid)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        told.ends.follow({process})
    child.kill()
    told.ends.follow({process})
    assert told.within(LONG)


def test_no_descriptor_and_no_thread_is_left(child: subprocess.Popen[bytes]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    made = Told()
    made.ends.follow({processes.of_pid(child.pid)})
    made.ends.close()
    assert len(os.listdir("/proc/self/fd")) <= before, "what a test before this one left open may be closed meanwhile"
    assert not any(thread.name == "ends" for thread in threading.enumerate())
