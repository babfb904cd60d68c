# SPDX-License-Identifier: Apache-2.0
"""A simulated RDT machine, mounted for as long as it is needed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

from tools.lab import mounts, processes
from tools.lab.workspace import CHECKOUT, Workspace

START_TIMEOUT = 120.0


class Simulator:
    """``python -m vmqos.simulator`` with a mount point of its own.

    :param profile: the machine, such as ``cascade-lake``.
    :param mount_options: as for the kernel's resctrl, such as ``cdp``.
    :param name: tells several simulators of one workspace apart.
    :param module: what is run, with the simulator's own arguments.
    :ivar root: the mount point, for ``[resctrl] path``.
    :ivar sysfs: what the machine's caches are, for ``[resctrl] sysfs_cpu_path``.
    :ivar log: one JSON line for each change that was made.
    """

    def __init__(
        self,
        workspace: Workspace,
        profile: str = "cascade-lake",
        mount_options: str = "",
        name: str = "resctrl",
        module: str = "vmqos.simulator",
    ) -> None:
        self._workspace = workspace
        self.profile = profile
        self.mount_options = mount_options
        self._module = module
        self.root = workspace.path / name
        self.sysfs = workspace.path / f"{name}-sysfs"
        self.log = workspace.path / f"{name}.jsonl"
        self.output = workspace.path / f"{name}.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """PID of the running simulator."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Mount it, and wait until its root can be read.

        :raises RuntimeError: if it ends at once, with what it said.
        :raises TimeoutError: after :data:`START_TIMEOUT`.
        """
        self.root.mkdir(exist_ok=True)
        self._workspace.record_mount(self.root)
        command = [sys.executable, "-m", self._module, str(self.root), "--profile", self.profile]
        command += ["--sysfs", str(self.sysfs), "--log", str(self.log)]
        if self.mount_options:
            command += ["--mount-options", self.mount_options]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._workspace.record_process(self._process.pid)
        processes.wait_until(self._mounted_or_ended, f"the simulator mounting {self.root}", START_TIMEOUT)

    def stop(self) -> None:
        """Unmount it; every group in it is gone, as after ``umount`` of the kernel's. Starting it again is fine."""
        if self._process is None:
            return
        if self.pid is not None:
            subprocess.run(["umount", str(self.root)], stderr=subprocess.DEVNULL, check=False)
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGTERM)
                try:
                    self._process.wait(5)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
        if os.path.ismount(self.root) or self._is_dead_mount():
            subprocess.run(["umount", "--lazy", str(self.root)], stderr=subprocess.DEVNULL, check=False)
        self._workspace.forget_process(self._process.pid)
        self._process = None

    @contextlib.contextmanager
    def replaced(self, module: str, *arguments: object, pipes: bool = False) -> Iterator[subprocess.Popen[str]]:
        """Another program plays the machine, at the same mount point, as long as the block runs.

        :param arguments: its arguments, which tell it the mount point.
        :param pipes: whether the caller writes to its standard input, and reads its standard output.
        :raises RuntimeError: if it ends before it has mounted the machine.
        :raises TimeoutError: after :data:`START_TIMEOUT`.
        """
        self.stop()
        command = [sys.executable, "-m", module, *map(str, arguments)]
        pipe = subprocess.PIPE if pipes else None
        process = subprocess.Popen(command, cwd=CHECKOUT, start_new_session=True, stdin=pipe, stdout=pipe, text=True)
        self._workspace.record_process(process.pid)

        def is_mounted() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{module} ended with status {process.returncode}")
            return os.path.ismount(self.root)

        processes.wait_until(is_mounted, f"{module} mounting {self.root}", START_TIMEOUT)
        try:
            yield process
        finally:
            mounts.end(self.root, process)
            self._workspace.forget_process(process.pid)

    def changes(self) -> list[str]:
        """Every change that any process has made so far, one JSON object each."""
        return self.log.read_text().splitlines()

    def _mounted_or_ended(self) -> bool:
        assert self._process
        if self._process.poll() is not None:
            said = self.output.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the simulator ended with status {self._process.returncode}:\n{said}")
        return os.path.ismount(self.root) and (self.root / "schemata").exists() and self.sysfs.is_dir()

    def _is_dead_mount(self) -> bool:
        """Whether the mount outlived its server: stat(2) then says ENOTCONN, and ismount says no."""
        return str(self.root) in mounts.points()
