# SPDX-License-Identifier: Apache-2.0
"""HTTP over a Unix socket, as a client that shares no line with vmqos's own."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

TIMEOUT = 60.0
"""Seconds: an answer takes milliseconds, and many times as long on a machine that has other work."""


def get(path: Path, question: str, timeout: float = TIMEOUT) -> Any:
    """``GET`` something such as ``/v1/vms``; the result is the decoded JSON.

    :param path: the socket's.
    :raises RuntimeError: if the status is not 200.
    :raises OSError: if nobody answers.
    """
    connection = UnixConnection(path, timeout)
    try:
        connection.request("GET", question)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise RuntimeError(f"GET {question}: {response.status} {body.decode(errors='replace')}")
    return json.loads(body)


class UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to it."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
