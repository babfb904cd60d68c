# SPDX-License-Identifier: Apache-2.0
"""The simulator, on this host, through FUSE: a machine in a process of its own that lasts over many mounts."""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from tests.functional.replay.processes import ROOT, machine_server
from tools.lab.processes import wait_until
from vmqos.simulator.hardware.profiles import Profile

_LIBC = ctypes.CDLL(None, use_errno=True)
_PATIENCE = 120.0
"""Seconds to wait for a mount or an umount at most: no bound of what is tested."""

SOURCE = "VMQOS_CONFORMANCE_SIMULATOR"
"""The environment variable that names the folder whose ``vmqos`` is the simulator; this checkout's if it is not set."""


class SimulatorTarget:
    """``python -m vmqos.simulator`` but for the CPUs, which are the profile's, and the clock, which stands still."""

    def __init__(self, profile: Profile) -> None:
        if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
            raise RuntimeError("the simulator's mount needs root and /dev/fuse ('modprobe fuse')")
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="vmqos-conformance-"))
        os.chmod(self.root, 0o755)
        self._server = machine_server(profile, Path(os.environ.get(SOURCE, ROOT)))
        self._mounted = False

    def mount(self, options: str) -> str | None:
        """See :meth:`.Target.mount`."""
        # What a case finds must not depend on the cases before it, and nobody waits here.
        self.let_limbo_pass()
        _, failed = self._server.call("mount", self.root, options)
        if failed is None:
            wait_until(lambda: os.path.ismount(self.root), f"the simulator at {self.root}", _PATIENCE, 0.001)
            self._mounted = True
        return failed

    def umount(self) -> str | None:
        """See :meth:`.Target.umount`."""
        deadline = time.monotonic() + _PATIENCE
        while _LIBC.umount2(self.root.encode(), 0):
            failed = errno.errorcode[ctypes.get_errno()]
            # It is busy for a moment, too, while any process of this machine walks over it, as one that lists mounts.
            if failed != "EBUSY" or self._is_open_here() or time.monotonic() > deadline:
                return failed
            time.sleep(0.01)
        self._mounted = False
        wait_until(lambda: not self._server.do("is_mounted"), "the simulator's umount", _PATIENCE, 0.001)
        return None

    def _is_open_here(self) -> bool:
        """Whether this process, which tries the cases, has a file or a folder of it open."""
        for name in os.listdir("/proc/self/fd"):
            # The list itself was open, and is not any more.
            with suppress(FileNotFoundError):
                link = os.readlink(f"/proc/self/fd/{name}")
                if link == self.root or link.startswith(f"{self.root}/"):
                    return True
        return False

    def registers(self, wanted: Sequence[tuple[int, int]]) -> list[int | str]:
        """See :meth:`.Target.registers`."""
        found: list[int | str] = self._server.do("registers", list(wanted))
        return found

    def let_limbo_pass(self) -> None:
        """Time stands still here: they are let go."""
        self._server.do("leave_limbo", None)

    def lasting_limbo(self, rmids: int) -> AbstractContextManager[None]:
        """See :meth:`.Target.lasting_limbo`. Time stands still here."""
        return nullcontext()

    def close(self) -> None:
        """End the process, its mount and the mount point."""
        if self._mounted:
            _LIBC.umount2(self.root.encode(), 2)
        self._server.end()
        os.rmdir(self.root)
