# SPDX-License-Identifier: Apache-2.0
"""What is mounted, and unmounting what an agent is at work on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tools.lab import processes


def unmount(root: str | Path, *options: str, patience: float = 60.0) -> None:
    """Unmount it. It is busy for the milliseconds of each pass of an agent's.

    :param options: of umount.
    :raises TimeoutError: after so many seconds.
    """
    command = ["umount", *options, str(root)]
    processes.wait_until(lambda: subprocess.run(command, check=False).returncode == 0, " ".join(command), patience)


def end(root: str | Path, simulator: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Unmount a simulated machine, and end its process.

    A mount namespace that was made meanwhile has a copy of the mount, and keeps an unmounted simulator at work.

    :raises TimeoutError: as :func:`unmount`.
    :raises subprocess.TimeoutExpired: if the process has not ended after a minute.
    """
    unmount(root)
    simulator.terminate()
    simulator.wait(60)


def fields(path: str) -> list[list[str]]:
    """The fields of each line of a list of mounts.

    The lines end at a line feed alone: any user can have other bytes in a mount point.

    :param path: ``/proc/PID/mountinfo`` or ``/proc/PID/mounts`` (proc(5)).
    :raises OSError: if it can't be read.
    """
    lines = Path(path).read_bytes().split(b"\n")
    return [[os.fsdecode(field) for field in line.split(b" ")] for line in lines if line]


def points() -> list[str]:
    """Where something is mounted for this process, in the order of the mounts."""
    # Field 5 of mountinfo is the mount point.
    return [line[4] for line in fields("/proc/self/mountinfo")]
