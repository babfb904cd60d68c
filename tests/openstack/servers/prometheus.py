# SPDX-License-Identifier: Apache-2.0
"""Prometheus and its promtool, as Debian has them."""

from __future__ import annotations

import json
import subprocess
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.openstack.servers.process import Server, free_port, program
from tools.lab.workspace import Workspace

PACKAGE = "prometheus"


class Prometheus:
    """A Prometheus with an empty database, or with what a test has put there.

    :param configuration: its configuration file.
    :param database: the directory of its samples; an empty one of its own unless it is named.
    :ivar port: where it listens, on 127.0.0.1.
    """

    def __init__(self, workspace: Workspace, configuration: Path, database: Path | None = None) -> None:
        # The series of an earlier one in the same workspace would be answers for five minutes more.
        directory = Path(tempfile.mkdtemp(prefix="prometheus-", dir=workspace.path))
        self.port = port = free_port()
        self._url = f"http://127.0.0.1:{port}/api/v1"
        command = [
            program("prometheus", PACKAGE),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={database or directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self._server = Server(workspace, directory, command)
        self._server.wait_until(lambda: _is_ready(port), "Prometheus being ready")

    def ask(self, path: str, **parameters: str) -> Any:
        """``GET`` a path of its API, such as ``query``; the result is its data.

        :raises ValueError: if it refuses, with what it says.
        """
        try:
            with urllib.request.urlopen(
                f"{self._url}/{path}?{urllib.parse.urlencode(parameters)}", timeout=60
            ) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{path} {parameters}: {error.read().decode(errors='replace')}") from error

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an expression of PromQL in this moment."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def stop(self) -> None:
        """End it."""
        self._server.stop()


def _is_ready(port: int) -> bool:
    # Until then it says 503, which urllib raises as an OSError.
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=10) as answer:
        return answer.status == 200


def promtool(*arguments: str | Path, given: str = "") -> str:
    """What promtool prints.

    :param given: its standard input.
    :raises AssertionError: if it is not content, with what it says.
    """
    command = [str(program("promtool", PACKAGE)), *map(str, arguments)]
    done = subprocess.run(command, input=given, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
