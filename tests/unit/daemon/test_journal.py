# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_log import handlers

from vmqos.daemon import journal
from vmqos.visible_text import make_visible

UUID = "00000000-0000-4000-8000-000000000001"


class Journal:
    """A socket that takes what is sent to the journal, and the other end of a stream that systemd connected to it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "socket")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(self.path)
        self._read, written = os.pipe()
        self.stream = os.fdopen(written, "w")
        status = os.fstat(written)
        self.name = f"{status.st_dev}:{status.st_ino}"

    def entries(self) -> list[dict[str, str]]:
        """What was sent by the journal's protocol."""
        found = []
        while True:
            try:
                text = self._socket.recv(1 << 20).decode()
            except BlockingIOError:
                return found
            assert text.endswith("\n")
            found.append(dict(line.split("=", 1) for line in text[:-1].split("\n")))

    def printed(self) -> str:
        """What was written to the stream."""
        os.set_blocking(self._read, False)
        try:
            return os.read(self._read, 1 << 20).decode()
        except BlockingIOError:
            return ""

    def fill(self) -> None:
        """Send until no more is taken."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            try:
                while True:
                    sender.sendto(b"x", self.path)
            except BlockingIOError:
                pass

    def close(self) -> None:
        self._socket.close()
        self.stream.close()
        os.close(self._read)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path)
    yield made
    made.close()


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.Logger("of the tests")
    yield made


def start(logger: logging.Logger, there: Journal, monkeypatch: pytest.MonkeyPatch, stream: Any = None) -> None:
    """Have the logger write to a stream, the journal's unless given, as a service does."""
    monkeypatch.setenv("JOURNAL_STREAM", there.name)
    handler = logging.StreamHandler(stream or there.stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    make_visible(logger)
    journal.attach(logger, "vmqos-agent", there.path)


def test_a_line_with_fields_goes_to_the_journal_with_them_and_only_once(
    logger: logging.Logger, there: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(logger, there, monkeypatch)
    logger.warning("VM %s: pending", UUID, extra=journal.fields(VMQOS_VM=UUID, VMQOS_STATE="pending", VMQOS_EVENT=""))
    assert there.entries() == [
        {
            "MESSAGE": f"WARNING VM {UUID}: pending",
            "PRIORITY": "4",
            "SYSLOG_IDENTIFIER": "vmqos-agent",
            "VMQOS_VM": UUID,
            "VMQOS_STATE": "pending",
        }
    ]
    assert there.printed() == ""


def test_a_line_without_fields_is_a_line_as_before(
    logger: logging.Logger, there: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(logger, there, monkeypatch)
    logger.info("libvirt answers again")
    assert (there.entries(), there.printed()) == ([], "INFO libvirt answers again\n")


@pytest.mark.parametrize(
    ("log", "priority"),
    [("critical", "2"), ("error", "3"), ("warning", "4"), ("info", "6"), ("debug", "7")],
)
def test_the_journal_knows_how_grave_a_line_is(
    logger: logging.Logger, there: Journal, monkeypatch: pytest.MonkeyPatch, log: str, priority: str
) -> None:
    start(logger, there, monkeypatch)
    getattr(logger, log)("text", extra=journal.fields(VMQOS_VM=UUID))
    assert [entry["PRIORITY"] for entry in there.entries()] == [priority]


def test_no_text_can_pass_for_a_field(logger: logging.Logger, there: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    start(logger, there, monkeypatch)
    forged = "kept\nVMQOS_VM=another\x00\ud800\u2028x"
    logger.info("%s", forged, extra=journal.fields(VMQOS_STATE=forged))
    (entry,) = there.entries()
    assert entry["VMQOS_STATE"] == "kept\\nVMQOS_VM=another\\x00\\ud800\\u2028x"
    assert entry["MESSAGE"].endswith("\\nVMQOS_VM=another\\x00\\ud800\\u2028x")
    assert "VMQOS_VM" not in entry


def test_a_line_is_bounded(logger: logging.Logger, there: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    start(logger, there, monkeypatch)
    logger.info("\U0001f600" * 10**6, extra=journal.fields(VMQOS_VM="x" * 10**6))
    (entry,) = there.entries()
    assert len(entry["MESSAGE"]) == len(entry["VMQOS_VM"]) == journal.LONGEST_VALUE


def unlink(there: Journal) -> None:
    os.unlink(there.path)


@pytest.mark.parametrize("hinder", [unlink, Journal.fill])
def test_a_journal_that_does_not_take_it_holds_nothing_up_and_the_line_is_printed(
    logger: logging.Logger, there: Journal, monkeypatch: pytest.MonkeyPatch, hinder: Callable[[Journal], None]
) -> None:
    start(logger, there, monkeypatch)
    hinder(there)
    began = time.monotonic()
    logger.info("VM is kept", extra=journal.fields(VMQOS_VM=UUID))
    assert time.monotonic() - began < 60
    assert there.printed() == "INFO VM is kept\n"


@pytest.mark.parametrize("is_file", [True, False])
def test_a_stream_that_is_not_the_journals_has_the_line_without_fields(
    logger: logging.Logger, there: Journal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_file: bool
) -> None:
    stream: Any = (tmp_path / "log").open("w+") if is_file else io.StringIO()
    start(logger, there, monkeypatch, stream)
    logger.info("VM is kept", extra=journal.fields(VMQOS_VM=UUID))
    stream.seek(0)
    assert (there.entries(), stream.read()) == ([], "INFO VM is kept\n")
    stream.close()


def test_a_stream_that_is_closed_is_not_the_journals(
    logger: logging.Logger, there: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.stream.close()
    start(logger, there, monkeypatch)
    assert not logger.handlers[0].filters


def test_without_systemd_nothing_is_sent(
    logger: logging.Logger, there: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    logger.addHandler(logging.StreamHandler(there.stream))
    journal.attach(logger, "vmqos-agent", there.path)
    logger.info("VM is kept", extra=journal.fields(VMQOS_VM=UUID))
    assert (there.entries(), there.printed()) == ([], "VM is kept\n")


def test_oslos_own_handler_of_the_journal_sends_what_has_no_fields(
    logger: logging.Logger, there: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    class Systemd:
        """The systemd bindings, which need not be installed."""

        @staticmethod
        def send(message: str, **further: object) -> None:
            sent.append(message)

    monkeypatch.setattr(handlers, "journal", Systemd)
    logger.addHandler(handlers.OSJournalHandler())
    start(logger, there, monkeypatch)
    logger.info("VM is kept", extra=journal.fields(VMQOS_VM=UUID))
    assert [entry["VMQOS_VM"] for entry in there.entries()] == [UUID]
    assert (sent, there.printed()) == ([], "")
    logger.info("libvirt answers again")
    assert (sent, there.entries(), there.printed()) == (["libvirt answers again"], [], "INFO libvirt answers again\n")
