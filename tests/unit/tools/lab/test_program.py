# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.lab.program import Preloaded, Program

MODULE = """
import os, signal, sys

def main():
    print(sys.argv[1:], os.getsid(0) == os.getpid(), repr(sys.stdin.read()), flush=True)
    if sys.argv[1] == "environment":
        print(os.environ.get("OF_A_TEST"))
    print("to stderr", file=sys.stderr, flush=True)
    if sys.argv[1] == "wait":
        signal.pause()
    return 3
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "module_of_a_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "log"


def start(log: Path, *arguments: str) -> Program:
    return Preloaded(["module_of_a_test"])("module_of_a_test", arguments, log)


def test_a_preloaded_program_is_a_process_of_its_own(log: Path) -> None:
    program = start(log, "end", "now")
    assert program.pid != os.getpid()
    assert program.wait(30) == program.poll() == 3
    assert log.read_text() == "['end', 'now'] True ''\nto stderr\n"


def test_a_preloaded_program_has_the_environment_of_its_start(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preloaded = Preloaded(["module_of_a_test"])
    for value in ("one", "two"):
        monkeypatch.setenv("OF_A_TEST", value)
        assert preloaded("module_of_a_test", ["environment"], log).wait(30) == 3
    monkeypatch.delenv("OF_A_TEST")
    assert preloaded("module_of_a_test", ["environment"], log).wait(30) == 3
    assert log.read_text().splitlines()[1::3] == ["one", "two", "None"]


def test_a_preloaded_program_can_be_killed(log: Path) -> None:
    program = start(log, "wait")
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.2)
    assert program.poll() is None
    program.send_signal(signal.SIGKILL)
    assert program.wait(30) == -signal.SIGKILL
    program.send_signal(signal.SIGTERM)


def test_a_preloaded_program_that_has_just_ended_can_be_sent_a_signal(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who forked it has reaped it, and has not told its status yet."""
    program = start(log, "end")
    assert program.wait(30) == 3
    monkeypatch.setattr(program, "poll", lambda: None)
    program.send_signal(signal.SIGKILL)
