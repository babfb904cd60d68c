# SPDX-License-Identifier: Apache-2.0
"""A server as a process of the test's workspace."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.lab import processes
from tools.lab.workspace import CHECKOUT, Workspace

START_TIMEOUT = 180.0
_held: list[socket.socket] = []
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


class Server:
    """A process with a log, which is ended with the workspace at the latest.

    :param directory: the server's own; made if it is not there.
    :ivar log: what it says.
    """

    def __init__(
        self,
        workspace: Workspace,
        directory: Path,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self._workspace = workspace
        self.directory = directory
        self.log = directory / "log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                cwd=CHECKOUT,
                env=child_environment(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        workspace.record_process(self._process.pid)

    @property
    def pid(self) -> int:
        """Its PID."""
        return self._process.pid

    @property
    def said(self) -> str:
        """All that it has said."""
        return self.log.read_text(errors="replace")

    def wait_until(self, condition: Callable[[], bool], what: str, timeout: float = START_TIMEOUT) -> None:
        """Wait for ``condition`` while the server lives; an ``OSError`` in it counts as not yet.

        :raises RuntimeError: if the server ends.
        :raises TimeoutError: after ``timeout`` seconds.
        """

        def met() -> bool:
            if self._process.poll() is not None:
                end = self.said[-4000:]
                raise RuntimeError(f"{self.directory.name} ended with {self._process.returncode}:\n{end}")
            try:
                return condition()
            except OSError:
                return False

        try:
            processes.wait_until(met, what, timeout)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self.directory.name} says:\n{self.said[-4000:]}") from None

    def run(self, timeout: float = START_TIMEOUT) -> None:
        """Wait for the end of a program that does its work and ends.

        :raises RuntimeError: if it fails.
        """
        if self._process.wait(timeout):
            raise RuntimeError(f"{self.directory.name} ended with {self._process.returncode}:\n{self.said[-4000:]}")
        self._workspace.forget_process(self._process.pid)

    def stop(self) -> None:
        """End it and all that it started, at once: nothing of it is to be kept, and a farewell takes seconds."""
        # Its PID stays its own, and its group's, until it has been waited for.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._workspace.forget_process(self._process.pid)


def program(name: str, package: str) -> Path:
    """A program of the distribution.

    :param package: Debian's, which has it.
    :raises FileNotFoundError: if it is not installed.
    """
    found = shutil.which(name, path=_SYSTEM_PATH)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: apt-get install {package} (tools/test openstack does it)")
    return Path(found)


def script(name: str) -> Path:
    """A program that pip installed beside this Python.

    :raises FileNotFoundError: if it is not installed.
    """
    found = Path(sys.executable).parent / name
    if not found.exists():
        raise FileNotFoundError(f"{found} is not there: pip install '.[openstack]' (tox -e openstack does it)")
    return found


def free_port() -> int:
    """A TCP port of loopback that is the caller's until this process ends, for one server at a time.

    A server takes seconds until it binds its port. Meanwhile others ask for any port, each connection among them.
    """
    held = socket.socket()
    # Who asks for this port, and reuses addresses as servers do, gets it; who asks for any port gets another one.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _held.append(held)
    return int(held.getsockname()[1])


def answers(port: int) -> bool:
    """Whether somebody accepts connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def child_environment(further: Mapping[str, str]) -> dict[str, str]:
    """Ours and more, without what a shell or a service may say to our servers, nor proxies: all is on loopback."""
    foreign = ("OS_", "GNOCCHI_", "RABBITMQ_", "ERL_", "NOTIFY_SOCKET", "LISTEN_")
    proxies = ("http_proxy", "https_proxy", "all_proxy")
    ours = {k: v for k, v in os.environ.items() if not k.startswith(foreign) and k.lower() not in proxies}
    return {**ours, **further}
