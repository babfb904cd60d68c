# SPDX-License-Identifier: Apache-2.0
"""A Debian root that is booted, with systemd, so that units run as they do on a host."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

from tests.packages.debian_root import ENVIRONMENT, DebianRoot, Failed, run
from tools.lab import processes

BOOT = Path(__file__).with_name("boot.sh")
PATIENCE = 120.0
"""Seconds for a boot and for what a unit does. Each takes one or two."""


class Container:
    """See ``boot.sh``.

    :param root: what to boot.
    :param name: of its control group, and its host name.
    :ivar init: PID of its first process, as this machine counts.
    """

    def __init__(self, root: DebianRoot, name: str) -> None:
        self.root = root
        self.name = name
        self._log = root.path.with_name(f"{root.path.name}.boot.log")
        self._process: subprocess.Popen[bytes] | None = None
        self.init = 0

    def start(self) -> None:
        """Boot it, and wait until it is up.

        :raises TimeoutError: if it is not after two minutes.
        """
        alone = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", str(BOOT), str(self.root.path), self.name]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(alone, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        processes.wait_until(self._is_up, f"the boot of {self.root.path} (see {self._log})", PATIENCE, 0.2)

    def stop(self) -> None:
        """End all of its processes at once, and wait for their ends."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None
        # What was in the group needs a moment to be gone.
        group = f"/sys/fs/cgroup/{self.name}"
        gone = f"find {group} -depth -type d -exec rmdir {{}} \\;; ! test -e {group}"
        remove = f"mount -t cgroup2 cgroup2 /sys/fs/cgroup; {gone}"
        for _ in range(50):
            done = subprocess.run(["unshare", "--mount", "sh", "-c", remove], capture_output=True, check=False)
            if done.returncode == 0:
                return
            time.sleep(0.1)

    def command(self, *words: str) -> list[str]:
        """How to run a command in the container, as root."""
        entered = ("--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--root", "--wdns=/")
        return ["nsenter", f"--target={self.init}", *entered, *ENVIRONMENT, *words]

    def shell(self, line: str) -> str:
        """What a line of the shell prints, the errors among it.

        :raises Failed: if it ends with another status than 0.
        """
        return run(self.command("sh", "-ec", f"exec 2>&1\n{line}"))

    def wait_for(self, line: str, what: str) -> None:
        """Wait until a line of the shell ends with 0.

        :raises TimeoutError: if it does not within two minutes.
        """

        def done() -> bool:
            with contextlib.suppress(Failed):
                self.shell(line)
                return True
            return False

        processes.wait_until(done, what, PATIENCE, 0.3)

    def _is_up(self) -> bool:
        assert self._process
        if self._process.poll() is not None:
            raise RuntimeError(f"it ended: {self._log.read_text()[-3000:]}")
        if not self.init:
            # unshare, which waits, has one child: the first process inside.
            try:
                children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
                if not children or Path(f"/proc/{children[0]}/comm").read_text().strip() != "systemd":
                    return False
            except (FileNotFoundError, ProcessLookupError):
                # The script's own children, before that, are gone in a moment.
                return False
            self.init = int(children[0])
        with contextlib.suppress(Failed):
            return self.shell("systemctl is-system-running || true").strip() in ("running", "degraded")
        return False
