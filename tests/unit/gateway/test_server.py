# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterable
from typing import Any

import pytest

from vmqos.gateway.server import TcpServer


def behind(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"the application"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_port_serves_the_application_until_it_is_stopped() -> None:
    port = free_port()
    server = TcpServer(behind, "127.0.0.1", port)
    server.start()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        assert answer.read() == b"the application"
    server.stop()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)


def test_a_port_that_is_taken_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = TcpServer(behind, "127.0.0.1", taken.getsockname()[1])
        server.start()
        server.stop()
    assert "([http] host, port): Address already in use; the Unix socket has them" in caplog.text


def test_an_address_that_this_host_does_not_have_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    TcpServer(behind, "192.0.2.1", free_port()).stop()
    TcpServer(behind, "no.such.name.invalid", free_port()).stop()
    assert caplog.text.count("[http] host, port") == 2


def test_port_0_is_none_at_all() -> None:
    server = TcpServer(behind, "127.0.0.1", 0)
    server.start()
    server.stop()
