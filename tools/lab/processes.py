# SPDX-License-Identifier: Apache-2.0
"""Ending exactly the processes that are ours: by PID and start time, through a pidfd.

Other processes of the machine have names and arguments of any bytes: those of the campaign of hostile input, for one.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_INTERVAL = 0.05


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of ``pid`` (field 22 of proc(5)); ``None`` where it is gone or a zombie."""
    try:
        fields = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU time that the process has used, in the kernel and out of it (fields 14 and 15 of proc(5))."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def parent(pid: int) -> int | None:
    """The PID of a process's parent; ``None`` where the process is gone."""
    try:
        return int(_stat(pid)[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def _stat(pid: int) -> list[str]:
    """The fields of ``stat`` from the third one on: the second is the name."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()


def arguments(pid: int) -> list[str]:
    """The command line of a process; empty for a kernel thread, and where the process is gone or does not tell."""
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).rstrip("\0").split("\0")
    except OSError:
        return []


def end(pid: int, belongs: Callable[[int], bool], *, polite_for: float = 0.0) -> None:
    """End a process if it is the one that is meant.

    The check is made while a pidfd holds the PID, so that a later process of the same PID is never hit.

    :param belongs: whether the process that has this PID now is the one to end.
    :param polite_for: seconds to wait after SIGTERM before SIGKILL; 0 sends SIGKILL at once.
    :raises TimeoutError: if the process outlives SIGKILL by 60 seconds.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not belongs(pid):
            return
        for number, patience in ((signal.SIGTERM, polite_for), (signal.SIGKILL, 60.0)):
            if patience and _signal_and_wait(descriptor, number, patience):
                return
    finally:
        os.close(descriptor)
    raise TimeoutError(f"process {pid} did not end within 60 s of SIGKILL")


def _signal_and_wait(descriptor: int, number: int, patience: float) -> bool:
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return True
    return bool(select.select([descriptor], [], [], patience)[0])


def all_pids() -> Iterator[int]:
    """Every PID there is now, kernel threads included."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def wait_until(
    condition: Callable[[], object], what: str, timeout: float, poll_interval: float = POLL_INTERVAL
) -> None:
    """Wait for ``condition``.

    :param poll_interval: seconds from one look to the next.
    :raises TimeoutError: after ``timeout`` seconds, saying ``what`` did not happen. Those that a sleep took too long do
        not count: the machine was suspended, or had no CPU to give.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        asleep_since = time.monotonic()
        if asleep_since > deadline:
            raise TimeoutError(f"{what}: not within {timeout:.0f} s")
        time.sleep(poll_interval)
        deadline += time.monotonic() - asleep_since - poll_interval
