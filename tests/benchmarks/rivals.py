# SPDX-License-Identifier: Apache-2.0
"""Those we are compared with: a C program that makes the system calls and nothing else, Intel's pqos and goresctrl."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence

from tests.benchmarks.figures import Cost, Sample
from tests.benchmarks.instructions import Counter
from tests.benchmarks.programs import compiled
from tools.lab import processes
from vmqos.resctrl.filesystem import Filesystem

LONGEST_WRITE = 4095
MOST_PIDS = 128
"""As many as one call of pqos takes ("Too many groups selected")."""

_NO_PMU = ("--disable-mon-ipc", "--disable-mon-llc_miss")

COS = "COS"
"""pqos knows groups of that name with a number behind it, and makes as many as there can be."""


class SystemCalls:
    """``system_calls.c``, or what speaks as it does, waiting to be told; each queue is one action."""

    def __init__(self, process: subprocess.Popen[str], queues: int) -> None:
        self._process = process
        self._queues = queues

    @property
    def pid(self) -> int:
        """The program's PID."""
        return self._process.pid

    def go(self, queue: int) -> Sample:
        """Make the calls of one queue."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"go {queue}\n")
        self._process.stdin.flush()
        wall, cpu = map(int, self._process.stdout.readline().split())
        return Sample(wall / 1e6, cpu / 1e6)

    def rest(self) -> Sample:
        """What :meth:`go` costs besides the calls."""
        return self.go(self._queues)


def moving(path: str, tids: Iterable[int]) -> list[str]:
    """The calls that move tasks into the group whose ``tasks`` file this is: comma-joined, as few writes as can be."""
    calls, text = [f"open {path}"], ""
    for word in map(str, sorted(tids)):
        if len(text) + len(word) + 2 > LONGEST_WRITE:
            calls.append(f"write {text}")
            text = ""
        text = f"{text},{word}" if text else word
    return [*calls, f"write {text}", "close"]


def writing(path: str, line: str) -> list[str]:
    """The calls that write one line to a file."""
    return [f"open {path}", f"write {line}", "close"]


def reading(paths: Iterable[str]) -> list[str]:
    """The calls that read some files to their ends."""
    return [f"read {path}" for path in paths]


def keeping(paths: Iterable[str]) -> list[str]:
    """The calls that read some files that stay open."""
    return [f"pread {path}" for path in paths]


def counting(tids: Iterable[int]) -> list[str]:
    """The calls that read what the kernel counts of some tasks (perf)."""
    return [f"count {tid}" for tid in tids]


@contextlib.contextmanager
def system_calls(*queues: Sequence[str]) -> Iterator[SystemCalls]:
    """Run the C program with these actions."""
    process = subprocess.Popen([compiled("system_calls")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    try:
        for number, calls in enumerate(queues):
            process.stdin.write("".join(f"{line}\n" for line in (f"queue {number}", *calls)))
        yield SystemCalls(process, len(queues))
    finally:
        process.stdin.close()
        process.wait()


@contextlib.contextmanager
def goresctrl(program: str, counter: Counter | None) -> Iterator[tuple[SystemCalls, list[int]]]:
    """Run the program that reads by goresctrl (``goresctrl/main.go``): it has one queue, all counters.

    :param program: its path.
    :param counter: of the instructions that it executes.
    :returns: the program, and what it has found: how many groups, and how many counters.
    """
    process = subprocess.Popen(
        [program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=counter.enter if counter else None,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield SystemCalls(process, 1), [int(word) for word in process.stdout.readline().split()]
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def pqos_is_there() -> bool:
    """Whether pqos is installed."""
    return shutil.which("pqos") is not None


class Pqos:
    """``pqos --iface=os``, a process for each action, as its users run it.

    :param counter: of the instructions that it executes.
    """

    def __init__(self, counter: Counter | None) -> None:
        self._counter = counter

    def run(self, *arguments: str) -> Sample:
        """Run it once.

        :raises RuntimeError: if it fails, with what it said.
        """
        began = time.perf_counter()
        process = subprocess.Popen(
            ["pqos", "--iface=os", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=self._counter.enter if self._counter else None,
        )
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = (time.perf_counter() - began) * 1e3
        if process.returncode:
            raise RuntimeError(f"pqos {' '.join(arguments)[:80]}: {said.decode(errors='replace')[-500:]}")
        return Sample(wall, (usage.ru_utime + usage.ru_stime) * 1e3)

    def watch(self, *arguments: str, seconds: int) -> Cost:
        """Let it watch processes, and take the cost of one of its rounds, which it makes once a second if it can.

        It counts instructions and LLC misses by perf beside whatever it is asked for, and watches nobody where there is
        no PMU; so it is told not to.

        :param seconds: for how long; the mean of its rounds is taken.
        :raises RuntimeError: if it fails, with what it said.
        """
        process = subprocess.Popen(
            ["pqos", "--iface=os", *_NO_PMU, *arguments, "-i", "10", "-t", str(seconds)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=self._counter.enter if self._counter else None,
        )
        assert process.stdout is not None
        said, marks = [], []
        for line in process.stdout:
            said.append(line)
            if line.startswith("TIME"):
                counted = self._counter.read() if self._counter else 0
                marks.append((time.perf_counter() * 1e3, 1e3 * processes.cpu_seconds(process.pid), counted))
        # The first round pays for the start.
        rounds = len(marks) - 2
        if process.wait() or rounds < 1:
            raise RuntimeError(f"pqos {' '.join(arguments)[:80]}: {''.join(said)[-500:]}")
        wall, cpu, executed = ((after - before) / rounds for before, after in zip(marks[1], marks[-1], strict=True))
        return Cost([Sample(wall, cpu)], executed if self._counter else None)

    def start(self) -> Sample:
        """The least that it can be asked for: what the machine can do."""
        return self.run("--display")


@contextlib.contextmanager
def groups_of_pqos(filesystem: Filesystem, pqos: Pqos) -> Iterator[list[str]]:
    """Control groups that pqos knows, so that all act on the same: it takes every CLOSID that is free."""
    pqos.start()
    try:
        yield [name for name in filesystem.directories() if name.startswith(COS)]
    finally:
        for name in filesystem.directories():
            if name.startswith(COS):
                filesystem.rmdir(name)
