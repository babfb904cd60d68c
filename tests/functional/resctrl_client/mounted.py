# SPDX-License-Identifier: Apache-2.0
"""Mounting a resctrl for a test, and putting tasks at its disposal."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from vmqos.resctrl import mount
from vmqos.resctrl.filesystem import Filesystem

if TYPE_CHECKING:
    # Not there in the machine where the kernel's own is tried.
    from tools.lab.simulator import Simulator

T = TypeVar("T")
PATIENCE = 120.0
"""Seconds: longer than any RMID stays in limbo here, and than a busy machine takes to start a process in a guest."""

ON_KERNEL = "VMQOS_GUEST" in os.environ
"""Whether this is a guest of the kernel's lab, where the kernel's own resctrl is tried."""

ASKED_FOR_KERNEL = ON_KERNEL or os.environ.get("VMQOS_TEST_RESCTRL") == "kernel"
"""Whether the tests are for such guests, which the lab boots, or for the simulator."""

_SLEEPERS = """
import sys, threading
threading.stack_size(65536)
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def kernels(*options: str) -> Iterator[Filesystem]:
    """The kernel's own resctrl, mounted afresh; to unmount it fails if anything of it is still open."""
    option = ["-o", ",".join(options)] if options else []
    subprocess.run(["mount", "-t", "resctrl", *option, "resctrl", mount.DEFAULT_PATH], check=True)
    try:
        yield Filesystem(mount.DEFAULT_PATH)
    finally:
        subprocess.run(["umount", mount.DEFAULT_PATH], check=True)


@contextlib.contextmanager
def simulated(simulator: Simulator) -> Iterator[Filesystem]:
    """A simulator's resctrl; to unmount it fails if anything of it is still open."""
    try:
        simulator.start()
        yield Filesystem(str(simulator.root))
        # For a moment it is busy, too, while any process of the machine walks over it, such as one that lists mounts.
        retry(lambda: subprocess.run(["umount", str(simulator.root)], check=True), subprocess.CalledProcessError)
    finally:
        simulator.stop()


def retry(action: Callable[[], T], *errors: type[Exception]) -> T:
    """Carry out the action until it no longer raises one of these errors; what it returns then."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return action()
        except errors:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Sleepers:
    """A process that does nothing, with its threads."""

    process: subprocess.Popen[bytes]
    tids: frozenset[int]


@contextlib.contextmanager
def sleepers(count: int) -> Iterator[Sleepers]:
    """A process with that many threads, its main thread included."""
    command = [sys.executable, "-c", _SLEEPERS, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            tids = frozenset(map(int, os.listdir(f"/proc/{process.pid}/task")))
            # Some may be on their way to sleep, and that counts as work in a group.
            retry(lambda: _all_sleep(tids), AssertionError)
            yield Sleepers(process, tids)
        finally:
            process.kill()


def _all_sleep(tids: frozenset[int]) -> None:
    for tid in tids:
        with open(f"/proc/{tid}/stat", encoding="ascii") as file:
            assert file.read().rpartition(")")[2].split()[0] == "S"


def dead_tid() -> int:
    """The id of a task that has just ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def impossible_tids(count: int) -> set[int]:
    """Ids that no task can have on this kernel."""
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        first = int(file.read()) + 1
    return set(range(first, first + count))
