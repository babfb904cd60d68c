# SPDX-License-Identifier: Apache-2.0
"""Processes that access memory as a test tells them (``walker.c``)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

SOURCE = Path(__file__).with_name("walker.c")


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
        self._expect("done")

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
            started._expect("ready")
            yield started
        finally:
            running.kill()


def _of(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
