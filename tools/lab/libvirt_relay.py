# SPDX-License-Identifier: Apache-2.0
"""Stands between clients of libvirt and a libvirtd, and may cut their connection or wait before a message goes on."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPLY = 1
"""``VIR_NET_REPLY``, the type of a message, in libvirt's virnetprotocol.x."""

_HEAD = struct.Struct(">6I")
"""The head of a message: length, program, version, procedure, type, serial (virnetprotocol.x)."""
_PROCEDURE, _TYPE = 3, 4
_PATIENCE = 60.0
"""Seconds for what is being looked at when the relay is closed."""


@dataclass(frozen=True, slots=True)
class Message:
    """What was read from one of the two at once. In what tests ask, that is a message, and its head can be told.

    :ivar is_answer: whether it comes from libvirtd.
    :ivar procedure: of libvirt's remote_protocol.x, 0 for a message that is too short; ``kind`` the same of its type.
    """

    is_answer: bool
    procedure: int
    kind: int


class LibvirtRelay:
    """Passes on what clients and a libvirtd say, one connection after the other.

    :param path: the socket for clients.
    :param target: libvirtd's socket.
    :param passes: called before a message is passed on; where it returns ``False``, the connection is cut instead.
    :ivar uri: for clients.
    """

    def __init__(self, path: Path, target: Path, passes: Callable[[Message], bool]) -> None:
        self.uri = f"qemu+unix:///system?socket={urllib.parse.quote(str(path))}"
        self._target = target
        self._passes = passes
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._closing, self._closed = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no connection any more, and end the one that there is; a second call does nothing."""
        self._closing.close()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(_PATIENCE)
        self._listener.close()
        self._closed.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                # A connection that breaks by itself ends alone: the next one must be served.
                with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
                    server.connect(str(self._target))
                    self._pass_on(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            ready, _, _ = select.select([client, server, self._closed], [], [])
            if self._closed in ready:
                return
            for source in ready:
                data = source.recv(1 << 20)
                if not data or not self._passes(_message(data, source is server)):
                    return
                (server if source is client else client).sendall(data)


def _message(data: bytes, is_answer: bool) -> Message:
    head = _HEAD.unpack_from(data) if len(data) >= _HEAD.size else (0,) * 6
    return Message(is_answer, head[_PROCEDURE], head[_TYPE])
