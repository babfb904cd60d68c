# SPDX-License-Identifier: Apache-2.0
"""A connection to a libvirt that is not there; the one that is has its functional tests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.eventually import eventually
from vmqos.hypervisor import connection as module
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
        lambda: connection.describe("38c43823-3651-469c-b344-166d1c87d77b"),
    ):
        with pytest.raises(exceptions.HypervisorUnreachable, match="Check that libvirtd") as raised:
            call()
        assert f"virsh --readonly --connect '{nowhere}' list" in str(raised.value)


def test_it_goes_on_trying_and_leaves_it_to_its_owner_to_say_so(nowhere: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        connection = Connection(nowhere, lambda uuid: None, retry_delays=(0.01, 0.02))
        connection.start(wait=True)
        eventually(lambda: len(caplog.records) > 2)
        connection.close()
    assert {(record.levelname, "can't be reached" in record.message) for record in caplog.records} == {("DEBUG", True)}


def test_that_the_first_try_has_failed_is_told(nowhere: str) -> None:
    heard = list[tuple[str | None, bool]]()
    connection = Connection(nowhere, lambda uuid: heard.append((uuid, connection.was_tried)), retry_delays=(0.01, 0.02))
    connection.start(wait=True)
    eventually(lambda: bool(heard))
    time.sleep(0.1)
    connection.close()
    assert heard == [(None, True)]


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
    connection.close(timeout=50)
    assert time.monotonic() - began < 50, "the next try would be after sixty seconds"
    assert not connection._thread.is_alive()


class HangingLibvirt:
    """libvirt of a private kind: descriptions hang until the event is set.

    Like libvirt's library, it bears one thread at a time on a connection: it notes where there were two.
    """

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.opened: list[Client] = []
        self.has_mixed_calls = False

    def open(self, uri: str) -> Client:
        self.opened.append(Client(self))
        return self.opened[-1]

    @property
    def calls_under_way(self) -> int:
        return sum(client.is_called for client in list(self.opened))


def assert_all_are_closed_soon(libvirt: HangingLibvirt) -> None:
    """Who opens a connection closes it, and may be late: its end does not wait for that."""
    eventually(lambda: not any(client.is_open for client in libvirt.opened))


class Client:
    """A connection to it."""

    def __init__(self, libvirt: HangingLibvirt) -> None:
        self._libvirt = libvirt
        self._call = threading.Lock()
        self.is_open = True

    @property
    def is_called(self) -> bool:
        return self._call.locked()

    def getHostname(self) -> str:
        return "compute-1"

    def registerCloseCallback(self, *_: object) -> None: ...
    def unregisterCloseCallback(self) -> None: ...
    def setKeepAlive(self, *_: object) -> None: ...
    def domainEventRegisterAny(self, *_: object) -> int:
        return 0

    def domainEventDeregisterAny(self, *_: object) -> None: ...
    def isAlive(self) -> bool:
        return True

    def close(self) -> None:
        self.is_open = False

    def lookupByUUIDString(self, uuid: str) -> Domain:
        return Domain(self, uuid)

    def describe(self, uuid: str) -> str:
        if not self._call.acquire(blocking=False):
            self._libvirt.has_mixed_calls = True
            return "<domain/>"
        if uuid.startswith("hangs"):
            self._libvirt.answers.wait(30)
        self._call.release()
        return "<domain/>"


class Domain:
    """A VM."""

    def __init__(self, client: Client, uuid: str) -> None:
        self._client, self._uuid = client, uuid

    def XMLDesc(self, flags: int) -> str:
        return self._client.describe(self._uuid)


def test_a_vm_is_described_however_many_descriptions_of_others_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    libvirt = HangingLibvirt()
    monkeypatch.setattr(module.libvirt, "openReadOnly", libvirt.open)
    monkeypatch.setattr(module.domain_xml, "parse", lambda xml: None)
    connection = Connection("test:///", lambda uuid: None)
    connection.start(wait=True)
    eventually(lambda: len(libvirt.opened) > module.SPARES)
    asked = [
        threading.Thread(target=connection.describe, args=(f"hangs-{number}",), daemon=True)
        for number in range(3 * module.SPARES)
    ]
    for thread in asked:
        thread.start()
    eventually(lambda: libvirt.calls_under_way == 3 * module.SPARES)
    answered = threading.Thread(target=connection.describe, args=("answers",), daemon=True)
    answered.start()
    answered.join(60)
    assert not answered.is_alive()
    assert len(libvirt.opened) == 3 * module.SPARES + 1
    libvirt.answers.set()
    for thread in asked:
        thread.join()
    assert sum(client.is_open for client in libvirt.opened) == module.SPARES + 1, "the others are not kept"
    assert not libvirt.has_mixed_calls
    connection.close()
    assert_all_are_closed_soon(libvirt)


def test_where_libvirt_answers_nothing_there_is_an_end_to_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    libvirt = HangingLibvirt()
    monkeypatch.setattr(module.libvirt, "openReadOnly", libvirt.open)
    monkeypatch.setattr(module.domain_xml, "parse", lambda xml: None)
    connection = Connection("test:///", lambda uuid: None)
    connection.start(wait=True)
    asked = [
        threading.Thread(target=connection.describe, args=(f"hangs-{number}",), daemon=True)
        for number in range(module.MOST + 10)
    ]
    for thread in asked:
        thread.start()
    eventually(lambda: libvirt.calls_under_way == module.MOST)
    time.sleep(0.2)
    assert len(libvirt.opened) == module.MOST
    libvirt.answers.set()
    for thread in asked:
        thread.join(60)
    assert not any(thread.is_alive() for thread in asked) and not libvirt.has_mixed_calls
    connection.close()
    assert_all_are_closed_soon(libvirt)


def test_no_call_waits_for_a_further_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    libvirt, may_open = HangingLibvirt(), threading.Event()

    def open_slowly(uri: str) -> Client:
        if libvirt.opened:
            may_open.wait(30)
        return libvirt.open(uri)

    monkeypatch.setattr(module.libvirt, "openReadOnly", open_slowly)
    monkeypatch.setattr(module.domain_xml, "parse", lambda xml: None)
    connection = Connection("test:///", lambda uuid: None)
    connection.start(wait=True)
    answered = threading.Thread(target=connection.describe, args=("answers",), daemon=True)
    answered.start()
    answered.join(60)
    assert not answered.is_alive() and len(libvirt.opened) == 1, "the first connection was idle"
    may_open.set()
    connection.close()
    assert_all_are_closed_soon(libvirt)


@pytest.mark.parametrize("forgotten", [1, module.MOST_TRIES + 2])
def test_a_try_that_libvirt_never_answers_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch, forgotten: int
) -> None:
    libvirt, may_open, tries, looked = HangingLibvirt(), threading.Event(), list[str](), threading.Event()
    own = f"test:///{forgotten}"

    def open_late(uri: str) -> Client:
        if uri != own:
            # A thread of a test before this one is late.
            return HangingLibvirt().open(uri)
        tries.append(uri)
        if len(tries) <= forgotten:
            may_open.wait(60)
        # No try succeeds before the test has looked at the failure of the first one.
        looked.wait(60)
        return libvirt.open(uri)

    monkeypatch.setattr(module.libvirt, "openReadOnly", open_late)
    connection = Connection(own, lambda uuid: None, retry_delays=(0.01, 0.02), answer_patience=0.1)
    connection.start(wait=True)
    assert not connection.is_connected and "does not answer" in connection.last_error
    looked.set()
    if forgotten >= module.MOST_TRIES:
        time.sleep(1.0)
        assert len(tries) == module.MOST_TRIES, "a daemon that hangs is not asked without end"
        may_open.set()
    eventually(lambda: connection.is_connected)
    may_open.set()
    connection.close()
    assert libvirt.opened
    assert_all_are_closed_soon(libvirt)


def test_where_libvirt_opens_no_connection_threads_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    libvirt, may_open, tries = HangingLibvirt(), threading.Event(), list[str]()

    def open_late(uri: str) -> Client:
        if uri != "test:///pile":
            return HangingLibvirt().open(uri)
        if libvirt.opened:
            tries.append(uri)
            may_open.wait(60)
        return libvirt.open(uri)

    monkeypatch.setattr(module.libvirt, "openReadOnly", open_late)
    monkeypatch.setattr(module.domain_xml, "parse", lambda xml: None)
    connection = Connection("test:///pile", lambda uuid: None, answer_patience=0.05)
    connection.start(wait=True)
    hangs = threading.Thread(target=connection.describe, args=("hangs",), daemon=True)
    hangs.start()
    eventually(lambda: libvirt.calls_under_way == 1)
    for _ in range(module.MOST_OPENING + 5):
        with pytest.raises(exceptions.HypervisorUnreachable, match="does not answer"):
            connection.describe("answers")
    assert len(tries) == module.MOST_OPENING
    may_open.set()
    eventually(lambda: sum(client.is_open for client in libvirt.opened) == 1)
    assert connection.describe("answers") is None
    libvirt.answers.set()
    hangs.join(60)
    connection.close()
    assert_all_are_closed_soon(libvirt)


def test_a_host_without_a_thread_for_spare_connections_is_connected_again(monkeypatch: pytest.MonkeyPatch) -> None:
    libvirt, start = HangingLibvirt(), threading.Thread.start

    def refuse_some(thread: threading.Thread) -> None:
        if thread.name == "libvirt-spares":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_some)
    monkeypatch.setattr(module.libvirt, "openReadOnly", libvirt.open)
    connection = Connection("test:///", lambda uuid: None, retry_delays=(0.01, 0.02))
    connection.start(wait=True)
    eventually(lambda: connection.is_connected)
    connection._lose("the test has cut it")
    eventually(lambda: len(libvirt.opened) == 2 and connection.is_connected)
    connection.close()
    assert_all_are_closed_soon(libvirt)
