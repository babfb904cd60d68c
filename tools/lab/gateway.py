# SPDX-License-Identifier: Apache-2.0
"""The gateway of an agent."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from tools.lab import processes
from tools.lab.program import Launch, Program, launch
from tools.lab.unix_http import TIMEOUT, get
from tools.lab.workspace import Workspace

START_TIMEOUT = 60.0
STOP_TIMEOUT = 60.0
"""Seconds: both take one or two, and many times as long where a CPU is emulated on a machine that has other work."""


class Gateway:
    """``vmqos-gateway`` on the configuration file of its agent.

    :param config_file: the agent's.
    :param socket: ``[gateway] socket`` in that file.
    :param name: tells several gateways of one workspace apart.
    :param launch: how to start it.
    :ivar log: what the gateway says.
    """

    def __init__(
        self, workspace: Workspace, *, config_file: Path, socket: Path, name: str, launch: Launch = launch
    ) -> None:
        self._workspace = workspace
        self._launch = launch
        self._process: Program | None = None
        self.config_file = config_file
        self.socket = socket
        self.log = workspace.path / f"{name}.log"

    @property
    def pid(self) -> int | None:
        """PID of the running gateway."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def has_ended(self) -> bool:
        """Whether it was started, and ended although nobody had it end here."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Start it, and wait until it answers; its agent need not.

        :raises RuntimeError: if it ends at once, with what it said.
        :raises TimeoutError: after :data:`START_TIMEOUT`.
        """
        self._process = self._launch("vmqos.gateway.main", ("--config-file", str(self.config_file)), self.log)
        self._workspace.record_process(self._process.pid)
        processes.wait_until(self._answers_or_ended, f"the gateway answering on {self.socket}", START_TIMEOUT)

    def stop(self) -> int | None:
        """End it by SIGTERM; the result is its exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int | None:
        """End it by SIGKILL."""
        return self._end(signal.SIGKILL)

    def get(self, path: str, timeout: float = TIMEOUT) -> Any:
        """``GET`` a path of the API from the gateway; see :func:`tools.lab.unix_http.get`."""
        return get(self.socket, path, timeout)

    def _end(self, number: signal.Signals) -> int | None:
        if self._process is None:
            return None
        self._process.send_signal(number)
        status = self._process.wait(STOP_TIMEOUT)
        self._workspace.forget_process(self._process.pid)
        self._process = None
        return status

    def _answers_or_ended(self) -> bool:
        if self._process and self._process.poll() is not None:
            said = self.log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the gateway ended with status {self._process.poll()}:\n{said}")
        try:
            self.get("/v1/nothing")
        except OSError:
            return False
        except RuntimeError:
            # It answers that there is no such thing, or that the agent is away.
            return True
        return True
