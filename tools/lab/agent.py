# SPDX-License-Identifier: Apache-2.0
"""The agent, with a configuration of its own, and its gateway."""

from __future__ import annotations

import configparser
import http.client
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.lab import processes, unix_http
from tools.lab.gateway import Gateway
from tools.lab.program import Launch, Program, launch
from tools.lab.workspace import Workspace

START_TIMEOUT = 120.0
STOP_TIMEOUT = 120.0
"""Seconds: both take one or two, and many times as long where a CPU is emulated on a machine that has other work."""

READ_TIMEOUT = 30.0
"""Seconds within which the agent can read resctrl, which takes it milliseconds."""

_TAKES_LONG = re.compile(r": 503 .*(a read of it has taken|was not free within)")

Options = Mapping[str, Mapping[str, object]]
"""Option values by section and name."""


class Agent:
    """``vmqos-agent`` on a configuration file that is written here, and its gateway where the options need one.

    A gateway is started and stopped with the agent where there is a TCP port, where OpenStack is told or asked
    something, or where the options have a section ``gateway``.

    :param resctrl: the root of resctrl.
    :param sysfs: ``[resctrl] sysfs_cpu_path``; the host's own where ``None``.
    :param uri: the libvirt connection.
    :param run_dir: ``[libvirt] run_dir``.
    :param options: further options, and other values for these.
    :param name: tells several agents of one workspace apart.
    :param launch: how to start it.
    :ivar config_file: for ``--config-file``.
    :ivar socket: the API's.
    :ivar gateway: the gateway, which runs only where the options need it.
    :ivar log: what the agent says.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        resctrl: Path,
        sysfs: Path | None,
        uri: str,
        run_dir: Path,
        options: Options | None = None,
        name: str = "agent",
        launch: Launch = launch,
    ) -> None:
        self._workspace = workspace
        self._launch = launch
        self._process: Program | None = None
        state = workspace.path / f"{name}-state"
        self.config_file = workspace.path / f"{name}.conf"
        self.socket = state / "agent.sock"
        self.log = workspace.path / f"{name}.log"
        self._options: dict[str, dict[str, object]] = {
            "resctrl": {"path": resctrl},
            "libvirt": {"uri": uri, "run_dir": run_dir},
            "agent": {"state_path": state},
        }
        self.gateway = Gateway(
            workspace,
            config_file=self.config_file,
            socket=workspace.path / f"{name}-gateway.sock",
            name=f"{name}-gateway",
            launch=launch,
        )
        self._options_of_the_gateway: dict[str, object] = {"socket": self.gateway.socket}
        if sysfs is not None:
            self._options["resctrl"]["sysfs_cpu_path"] = sysfs
        self.configure(options or {})

    def configure(self, options: Options) -> None:
        """Write the configuration file with these options changed; a running agent reads it at SIGHUP."""
        for section, values in options.items():
            self._options.setdefault(section, {}).update(values)
        # oslo.config substitutes $NAME.
        parser = configparser.ConfigParser(interpolation=None)
        written = {**self._options, "gateway": {**self._options_of_the_gateway, **self._options.get("gateway", {})}}
        for section, values in written.items():
            parser[section] = {key: str(value).replace("$", "$$") for key, value in values.items()}
        with self.config_file.open("w") as file:
            parser.write(file)

    @property
    def pid(self) -> int | None:
        """PID of the running agent."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it has looked at its host, or can't.

        :raises RuntimeError: if it ends at once, with what it said.
        :raises TimeoutError: after :data:`START_TIMEOUT`.
        """
        self.launch()
        if wait:
            processes.wait_until(self._looked_or_ended, f"the agent answering on {self.socket}", START_TIMEOUT)
        if self._needs_gateway and self.gateway.pid is None:
            self.gateway.start()

    def launch(self, *arguments: str) -> Program:
        """Start it without waiting, with further arguments such as ``--once``; its output goes to :attr:`log`."""
        arguments = ("--config-file", str(self.config_file), *arguments)
        self._process = self._launch("vmqos.agent.main", arguments, self.log)
        self._workspace.record_process(self._process.pid)
        return self._process

    def run_once(self, timeout: float = 180.0) -> int:
        """Run ``vmqos-agent --once``; the result is its exit status."""
        status = self.launch("--once").wait(timeout)
        self._forget()
        return status

    def reload(self) -> None:
        """Have the running agent read its configuration again (SIGHUP)."""
        if self._process:
            self._process.send_signal(signal.SIGHUP)

    def stop(self) -> int | None:
        """End it and its gateway by SIGTERM, which leaves the VMs' groups alone; the result is the agent's status."""
        self.gateway.stop()
        return self._end(signal.SIGTERM)

    def kill(self) -> int | None:
        """End it by SIGKILL; its gateway lives on."""
        return self._end(signal.SIGKILL)

    def end(self) -> None:
        """End it and its gateway by SIGKILL, whether they run or not."""
        self.gateway.kill()
        self.kill()

    def get(self, path: str, timeout: float = unix_http.TIMEOUT) -> Any:
        """``GET`` a path of the API, such as ``/v1/vms``; the result is the decoded JSON.

        For some answers the agent reads resctrl, and gives up after two seconds, which a machine that has other work
        may take. Then it is asked again, for :data:`READ_TIMEOUT`; :func:`tools.lab.unix_http.get` asks once.

        :raises RuntimeError: if the status is not 200.
        :raises OSError: if the agent does not answer.
        """
        until = time.monotonic() + READ_TIMEOUT
        while True:
            try:
                return unix_http.get(self.socket, path, timeout)
            except RuntimeError as error:
                if not _TAKES_LONG.search(str(error)) or time.monotonic() > until:
                    raise
            time.sleep(processes.POLL_INTERVAL)

    @property
    def metrics(self) -> Path:
        """Where ``/metrics`` is served: the gateway's socket. The gateway is started where it does not run."""
        if self.gateway.pid is None:
            self.gateway.start()
        return self.gateway.socket

    @property
    def _needs_gateway(self) -> bool:
        port = self._options.get("http", {}).get("port", 0)
        return bool(port) or any(
            section in self._options for section in ("gateway", "notifications", "nova", "placement")
        )

    def _end(self, number: signal.Signals) -> int | None:
        if self._process is None:
            return None
        self._process.send_signal(number)
        status = self._process.wait(STOP_TIMEOUT)
        self._forget()
        return status

    def _forget(self) -> None:
        if self._process:
            self._workspace.forget_process(self._process.pid)
            self._process = None

    def _looked_or_ended(self) -> bool:
        if self._process and self._process.poll() is not None:
            said = self.log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the agent ended with status {self._process.poll()}:\n{said}")
        try:
            return bool(self.get("/v1/health")["status"] != "starting")
        except (OSError, http.client.HTTPException):
            return False
