# SPDX-License-Identifier: Apache-2.0
"""A connection to a libvirt that is not there; the one that is has its functional tests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmqos.hypervisor import exceptions
from vmqos.hypervisor.connection import Connection


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    return f"qemu+unix:///system?socket={tmp_path}/nobody-listens"


@pytest.fixture
def connection(nowhere: str) -> Iterator[Connection]:
    opened = Connection(nowhere, lambda uuid: None, retry_delays=(0.01, 0.02))
    opened.start(wait=True)
    yield opened
    opened.close()


def test_it_says_why_it_is_not_connected(connection: Connection) -> None:
    assert not connection.is_connected
    assert "nobody-listens" in connection.last_error


def test_calls_say_what_to_check(connection: Connection, nowhere: str) -> None:
    for call in (
        connection.list_running,
        connection.hostname,
        lambda: connection.describe("38c43823-3651-469c-b344-166d1c87d77b"),
    ):
        with pytest.raises(exceptions.HypervisorUnreachable, match="Check that libvirtd") as raised:
            call()
        assert f"virsh --readonly --connect '{nowhere}' list" in str(raised.value)


def test_it_goes_on_trying_and_says_so_once(nowhere: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        connection = Connection(nowhere, lambda uuid: None, retry_delays=(0.01, 0.02))
        connection.start(wait=True)
        time.sleep(0.2)
        connection.close()
    assert len([record for record in caplog.records if "can't be reached" in record.message]) == 1


def test_a_uri_that_is_none_is_no_crash() -> None:
    connection = Connection("no such thing", lambda uuid: None)
    connection.start(wait=True)
    assert not connection.is_connected
    assert connection.last_error
    connection.close()


def test_before_the_start_it_is_not_connected(nowhere: str) -> None:
    connection = Connection(nowhere, lambda uuid: None)
    with pytest.raises(exceptions.HypervisorUnreachable, match="not connected yet"):
        connection.list_running()
    connection.close()


def test_closing_ends_its_thread_at_once(nowhere: str) -> None:
    connection = Connection(nowhere, lambda uuid: None, retry_delays=(60, 60))
    connection.start(wait=True)
    began = time.monotonic()
    connection.close()
    assert time.monotonic() - began < 5
    assert not any(thread.name.startswith("libvirt-") for thread in threading.enumerate())
