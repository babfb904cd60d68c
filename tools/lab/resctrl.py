# SPDX-License-Identifier: Apache-2.0
"""What an agent can be set to work on: the simulator's resctrl, or the kernel's own."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Resctrl(Protocol):
    """A resctrl that comes and goes as a test wants it."""

    @property
    def root(self) -> Path:
        """Where it is mounted."""
        ...

    @property
    def sysfs(self) -> Path | None:
        """What the machine's caches are (``[resctrl] sysfs_cpu_path``); ``None`` where the host's own say so."""
        ...

    def start(self) -> None:
        """Mount it, without any group."""
        ...

    def stop(self) -> None:
        """Unmount it, which takes all groups along; fine where another process did that already."""
        ...

    def changes(self) -> list[str]:
        """Every change that any process has made so far."""
        ...
