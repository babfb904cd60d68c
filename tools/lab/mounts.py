# SPDX-License-Identifier: Apache-2.0
"""Mounts that an agent is at work on."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tools.lab import processes


def unmount(root: str | Path, *options: str, patience: float = 20.0) -> None:
    """Unmount it. It is busy for the milliseconds of each pass of an agent's.

    :param options: of umount.
    :raises TimeoutError: after so many seconds.
    """
    command = ["umount", *options, str(root)]
    processes.wait_until(lambda: subprocess.run(command, check=False).returncode == 0, " ".join(command), patience)
