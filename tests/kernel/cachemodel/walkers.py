# SPDX-License-Identifier: Apache-2.0
"""Processes that access memory as a test tells them (``walker.c``)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

SOURCE = Path(__file__).with_name("walker.c")
PATIENCE = 60.0
"""Seconds in which a program that waits for an order falls asleep; it takes less than a millisecond."""


def build(directory: Path) -> Path:
    """Compile it."""
    program = directory / "walker"
    subprocess.run(["gcc", "-O2", "-Wall", "-o", str(program), str(SOURCE)], check=True)
    return program


@dataclass(frozen=True, slots=True)
class Walker:
    """A process that waits for orders."""

    process: subprocess.Popen[str]

    def do(self, order: str) -> None:
        """Have an order carried out: ``random N``, ``stream N`` or ``store N``."""
        self.begin(order)
        self.finish()

    def begin(self, order: str) -> None:
        """Give an order, such as ``endless``, without waiting for its end."""
        stdin = _of(self.process.stdin)
        stdin.write(f"{order}\n")
        stdin.flush()

    def finish(self) -> None:
        """Wait for the end of an order."""
        self.wait_for("done")

    def wait_for(self, word: str) -> None:
        """Wait until it has said this, and sleeps: on its way there it executes, too, and a test counts that.

        :raises RuntimeError: if it says something else, or does not fall asleep.
        """
        self._expect(word)
        until = time.monotonic() + PATIENCE
        while _state(self.process.pid) == "R":
            if time.monotonic() > until:
                raise RuntimeError(f"the walker said {word!r} and did not fall asleep")
            time.sleep(0.001)

    def _expect(self, word: str) -> None:
        said = _of(self.process.stdout).readline()
        if said != f"{word}\n":
            raise RuntimeError(f"the walker said {said!r} instead of {word!r}")


@contextmanager
def walker(program: Path, size: int, cpu: int, group: Path) -> Iterator[Walker]:
    """Start one, on one CPU, in a control or monitoring group from its first instruction on.

    :param size: bytes of memory that it accesses.
    """

    def enter() -> None:
        os.sched_setaffinity(0, {cpu})
        (group / "tasks").write_text("0")

    with process([str(program), str(size)], enter) as started:
        yield started


@contextmanager
def process(command: Sequence[str], enter: Callable[[], None]) -> Iterator[Walker]:
    """Start a program that takes orders as a walker does.

    :param enter: called in the new process, before its program is.
    """
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=enter
    ) as running:
        try:
            started = Walker(running)
            started.wait_for("ready")
            yield started
        finally:
            running.kill()


def _state(pid: int) -> str:
    """Whether a process runs (``R``), sleeps (``S``) or has ended (``Z``), as proc(5) has it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _of(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
