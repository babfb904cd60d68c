# SPDX-License-Identifier: Apache-2.0
"""The kernel's own resctrl, in the place of the simulator (:class:`tools.lab.resctrl.Resctrl`)."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.kernel import limbo
from tests.kernel.agent.witness import Witness
from vmqos.resctrl.filesystem import Filesystem

ROOT = Path("/sys/fs/resctrl")
PATIENCE = 60.0
"""Seconds for others to close what they have open."""


@dataclass(frozen=True, slots=True)
class KernelResctrl:
    """resctrl on ``/sys/fs/resctrl``, where libvirt and pqos look for it too.

    The mount option ``debug`` adds files that tell each group's CLOSID.

    :ivar options: what it is mounted with besides.
    """

    witness: Witness
    options: tuple[str, ...] = ()
    root: Path = ROOT
    sysfs: Path | None = None

    def start(self) -> None:
        """Mount it, and let RMIDs come back where the kernel's own threshold would never let them.

        :raises subprocess.CalledProcessError: if the kernel refuses.
        """
        subprocess.run(
            ["mount", "-t", "resctrl", "-o", ",".join(("debug", *self.options)), "resctrl", str(self.root)], check=True
        )
        limbo.let_end(Filesystem(str(self.root)))
        self.witness.watch(self.root)

    def stop(self) -> None:
        """Unmount it, which takes all groups along; fine where somebody else did that already.

        :raises TimeoutError: if somebody keeps a file of it open.
        """
        deadline = time.monotonic() + PATIENCE
        while os.path.ismount(self.root):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.root} stays busy")
            # Quiet: it is busy for the milliseconds of a pass of the agent.
            subprocess.run(["umount", str(self.root)], check=False, stderr=subprocess.DEVNULL)

    def changes(self) -> list[str]:
        """Every write of others so far."""
        return list(self.witness.written)
