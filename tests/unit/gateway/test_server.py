# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import socket
import threading
import time
import urllib.request
from collections.abc import Iterable
from typing import Any

import pytest

from tests.unit.eventually import eventually
from vmqos.gateway import server
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
    served = TcpServer(behind, "127.0.0.1", port)
    served.start()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        assert answer.read() == b"the application"
    served.stop()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)


def test_a_port_that_is_taken_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        served = TcpServer(behind, "127.0.0.1", taken.getsockname()[1])
        served.start()
        served.stop()
    assert "([http] host, port): Address already in use; the Unix socket has them" in caplog.text


def test_a_port_that_is_had_later_is_served_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "TRIED_AGAIN", 0.01)
    caplog.set_level(logging.INFO, "vmqos")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        late = TcpServer(behind, "127.0.0.1", port)
        late.start()
        time.sleep(0.1)
    eventually(lambda: "are on" in caplog.text)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        assert answer.read() == b"the application"
    late.stop()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)
    assert caplog.text.count("no metrics and no page") == 1


def test_a_port_that_is_never_had_keeps_nothing_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TRIED_AGAIN", 0.01)
    late = TcpServer(behind, "192.0.2.1", free_port())
    late.start()
    time.sleep(0.05)
    late.stop()
    assert "http-port" not in {thread.name for thread in threading.enumerate()}


def test_an_address_that_this_host_does_not_have_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    TcpServer(behind, "192.0.2.1", free_port()).stop()
    TcpServer(behind, "no.such.name.invalid", free_port()).stop()
    assert caplog.text.count("[http] host, port") == 2


def test_port_0_is_none_at_all() -> None:
    served = TcpServer(behind, "127.0.0.1", 0)
    served.start()
    served.stop()
