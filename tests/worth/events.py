# SPDX-License-Identifier: Apache-2.0
"""Processes beside the VMs: one that waits, works and waits again, and one that is noisy (``payload/events.c``)."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.cachemodel import switch
from tests.worth.rom import SOURCE

NAP = 5000
"""Microseconds between two looks at what the others did."""
FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True, slots=True)
class Rest:
    """What happens between two events.

    :ivar others: an RMID.
    :ivar lines: the most that it brings from memory meanwhile; how many it is, chance says.
    """

    others: int = 0
    lines: int = 0


QUIET = Rest()


@dataclass(frozen=True, slots=True)
class Event:
    """What one walk through all lines needed.

    :ivar l3: lines from the L3.
    :ivar memory: lines from memory.
    """

    l3: int
    memory: int


def build(directory: Path) -> Path:
    """Compile the program.

    :raises subprocess.CalledProcessError: if gcc refuses.
    """
    program = directory / "events"
    subprocess.run(["gcc", *FLAGS, "-o", str(program), str(SOURCE / "events.c")], check=True)
    return program


def watch(
    program: Path, resctrl: Path, cpu: int, size: int, events: int, rest: Rest = QUIET, device: str = "-"
) -> list[Event]:
    """Run it, monitored by a group of its own, and return what each event needed.

    :param resctrl: where resctrl is mounted, with ``debug``.
    :param size: bytes that one event walks through.
    :param device: to be mapped in place of memory of its own.
    """
    monitor = resctrl / "mon_groups/worth"
    monitor.mkdir()
    try:
        rmid = switch.rmid_of(monitor)
        with _started(program, cpu, rmid, device, size, events, NAP, rest.others, rest.lines) as process:
            (monitor / "tasks").write_text(f"{process.pid}\n")
            output, _ = process.communicate("\n")
        if process.returncode:
            raise RuntimeError(f"{program} ended with {process.returncode}")
    finally:
        monitor.rmdir()
    return [Event(*map(int, line.split())) for line in output.splitlines()]


@contextlib.contextmanager
def noise(program: Path, cpu: int, size: int) -> Iterator[None]:
    """Have a process read so many bytes, line by line, over and over."""
    with _started(program, cpu, 0, "stream", size, 0, 0, 0, 0) as process:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        yield
        process.kill()


@contextlib.contextmanager
def _started(program: Path, cpu: int, rmid: int, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [str(program), str(cpu), str(rmid), *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{' '.join(command)} did not start")
            yield process
        finally:
            process.kill()
