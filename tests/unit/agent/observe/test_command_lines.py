# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.unit.agent.loop_host import LONG
from tests.unit.eventually import eventually
from vmqos.agent.observe import command_lines
from vmqos.agent.observe.command_lines import MOST_UNDER_WAY, CommandLines
from vmqos.hypervisor import exceptions, processes
from vmqos.hypervisor.model import Process


def reads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "command-line"]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> CommandLines:
    monkeypatch.setattr(command_lines, "PATIENCE", LONG)
    made = CommandLines()
    made.begin()
    return made


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Processes that do not let themselves be read until it is set; then each says what is asked."""
    event = threading.Event()
    monkeypatch.setattr(processes, "says", lambda pid, arguments: event.wait(LONG))
    yield event
    event.set()
    eventually(lambda: not reads())


def test_a_process_that_can_be_read_is_told_of_at_once(lines: CommandLines) -> None:
    # Popen returns once the child has become its program.
    with subprocess.Popen(["sleep", "1234"]) as child:
        process = processes.of_pid(child.pid)
        assert lines.say(process, b"1234") is True
        assert lines.say(process, b"no such argument") is False
        child.kill()


def test_what_goes_wrong_is_told(lines: CommandLines, monkeypatch: pytest.MonkeyPatch) -> None:
    def says(pid: int, arguments: object) -> bool:
        raise exceptions.ProcessVanished(pid=pid)

    monkeypatch.setattr(processes, "says", says)
    for _ in range(2):
        with pytest.raises(exceptions.ProcessVanished):
            lines.say(Process(1, 1), b"-uuid")


def test_one_that_hangs_is_asked_once_and_anew_when_it_has_answered(
    hung: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = CommandLines()
    assert [lines.say(Process(1, 1), b"-uuid") for _ in range(3)] == [None] * 3
    assert len(reads()) == 1
    monkeypatch.setattr(processes, "says", lambda pid, arguments: False)
    hung.set()
    eventually(lambda: not reads())
    monkeypatch.setattr(command_lines, "PATIENCE", LONG)
    lines.begin()
    assert lines.say(Process(1, 1), b"-uuid") is False, "it may have become another program"


def test_another_process_with_the_same_pid_is_asked_anew(hung: threading.Event) -> None:
    lines = CommandLines()
    assert lines.say(Process(1, 1), b"-uuid") is lines.say(Process(1, 2), b"-uuid") is None
    assert len(reads()) == 2


def test_many_that_hang_take_few_threads_and_those_that_follow_are_asked_later(
    hung: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = CommandLines()
    for pid in range(3 * MOST_UNDER_WAY):
        assert lines.say(Process(pid, 1), b"-uuid") is None
    assert len(reads()) == MOST_UNDER_WAY
    hung.set()
    eventually(lambda: not reads())
    monkeypatch.setattr(command_lines, "PATIENCE", LONG)
    lines.begin()
    assert lines.say(Process(2 * MOST_UNDER_WAY, 1), b"-uuid") is True


def test_without_a_thread_it_is_not_known(lines: CommandLines, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object, **__: object) -> threading.Thread:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "Thread", no_thread)
    assert lines.say(Process(1, 1), b"-uuid") is None
