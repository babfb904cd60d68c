# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.lab.libvirt_relay import REPLY, LibvirtRelay, Message

CALL, LIST, GET_XML = 0, 273, 14


def said(procedure: int, kind: int) -> bytes:
    return struct.pack(">6I", 28, 0x20008086, 1, procedure, kind, 7) + b"body"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    """Answers each call of a client."""
    path = tmp_path / "daemon"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with contextlib.suppress(OSError), client:
                        while asked := client.recv(1 << 16):
                            client.sendall(said(struct.unpack_from(">6I", asked)[3] if len(asked) > 24 else 0, REPLY))

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


@contextlib.contextmanager
def relayed(path: Path, daemon: Path, passes: Callable[[Message], bool]) -> Iterator[LibvirtRelay]:
    relay = LibvirtRelay(path, daemon, passes)
    try:
        yield relay
    finally:
        relay.close()


def connected(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    client.connect(str(path))
    return client


def test_messages_go_both_ways_and_are_seen_before(tmp_path: Path, daemon: Path) -> None:
    seen: list[Message] = []

    def passes(message: Message) -> bool:
        seen.append(message)
        return True

    path = tmp_path / "relay"
    with relayed(path, daemon, passes) as relay, connected(path) as client:
        assert relay.uri == f"qemu+unix:///system?socket={path}"
        client.sendall(said(LIST, CALL))
        assert client.recv(1 << 16) == said(LIST, REPLY)
        client.sendall(b"short")
        assert client.recv(1 << 16) == said(0, REPLY)
    assert seen == [
        Message(False, LIST, CALL),
        Message(True, LIST, REPLY),
        Message(False, 0, 0),
        Message(True, 0, REPLY),
    ]


def test_a_message_that_may_not_pass_cuts_the_connection_and_the_next_one_is_served(
    tmp_path: Path, daemon: Path
) -> None:
    path = tmp_path / "relay"
    with relayed(path, daemon, lambda message: message.procedure != GET_XML):
        for _ in range(2):
            with connected(path) as client:
                client.sendall(said(LIST, CALL))
                assert client.recv(1 << 16) == said(LIST, REPLY)
                client.sendall(said(GET_XML, CALL))
                assert client.recv(1 << 16) == b""


def test_closing_ends_a_connection_that_is_open(tmp_path: Path, daemon: Path) -> None:
    path = tmp_path / "relay"
    with relayed(path, daemon, lambda message: True) as relay, connected(path) as client:
        client.sendall(said(LIST, CALL))
        client.recv(1 << 16)
        began = time.monotonic()
        relay.close()
        assert client.recv(1 << 16) == b""
        assert time.monotonic() - began < 30.0
        with pytest.raises(OSError), connected(path):
            pass
