# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of the API and the metrics: waitress, with bounds on what one client can take of it.

What waitress alone leaves open, and what is done here:

* It reads a request's body, up to a gigabyte and onto the disk, before the application is called. No request of ours
  has a body: one that announces a body is refused as soon as its headers are there.
* Its timeout counts idleness, so a request that comes byte by byte lives for ever; and it never closes a connection
  whose client does not read. Here, a request and an answer have an age limit.
* It answers requests that come in one piece one after the other, and blocks a thread when the client does not read.
  Here, a connection has one request at a time; one with more behind it is answered and closed.
* At its limit of connections it accepts no more, even if one client has all of them. Here, the client that has the most
  connections makes room: its connection that has waited longest without a whole request is closed.
* It keeps each answer until its client has taken it. Here, where answers of many megabytes wait for clients that do not
  read, the client that has the most of them loses the one that has waited longest.
* One client can have all threads work for it, and others' requests queue behind. Here, a client has some requests
  answered at a time and a further one is refused, so that a place is always left for a question that is answered at
  once, such as for health.
* It accepts one connection a round. A client that connects faster than that fills the kernel's queue, and every other
  client is refused. Here, a round accepts many, and closes at once what is beyond one client's share.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import math
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, TypeVar

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer, UnixWSGIServer
from waitress.task import ThreadedTaskDispatcher
from waitress.utilities import Error

# At INFO it writes a line for each client that leaves early, and at WARNING one for each request that waits for a
# thread: both are up to the clients.
logging.getLogger("waitress").setLevel(logging.WARNING)
logging.getLogger("waitress.queue").setLevel(logging.ERROR)

T = TypeVar("T")
StartResponse = Callable[..., object]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

PLACES = 64
"""Connections of one server at a time: with two servers, half of what :mod:`vmqos.telemetry.descriptors` spares."""

SHARE = 32
"""Connections of one client at a time: of a user on the Unix socket, of an address elsewhere."""

ASKING = 24
"""Requests of one client that are being answered, or wait for it. It is below :data:`SHARE`, so that a client always
has places for what is answered at once."""

BURST = 256
"""Connections that are accepted in a row, before those that are open have their turn."""

_FIRST_BYTES = 4096
"""Bytes that are looked at for the end of a request: ours and Prometheus's have some hundred."""

REQUEST_TIME = 10.0
"""Seconds that a connection has for a whole request, from its beginning or its last answer on."""

ANSWER_TIME = 30.0
"""Seconds that a client has to take an answer."""

MOST_WAITING = 64 << 20
"""Bytes of answers that wait to be taken as a whole on all connections of a server. A single one may have more."""

LOOK_AFTER = 1.0
"""Seconds between two looks at which connections are overdue."""

REST = 60.0
"""Seconds without a connection after which the polling thread wakes: a new one wakes it at once."""

THREADS = 4
"""For all paths but the one that is answered at once."""

_BOUNDS = {
    "ident": "vmqos",
    "max_request_header_size": 32 << 10,
    "max_request_body_size": 1,
    # Answers stay in memory, and are bounded by what the agent knows: none is written to the disk.
    "outbuf_overflow": 1 << 30,
    # PLACES is kept by closing connections; waitress's own limit also counts what is no connection.
    "connection_limit": 2 * PLACES,
    "log_socket_errors": False,
}

_PEER_CREDENTIALS = struct.Struct("3i")
"""``struct ucred`` of unix(7): process, user, group."""


class BoundedServer:
    """Serves an application from a thread of its own, between :meth:`start` and :meth:`stop`.

    :param application: answers the requests (WSGI).
    :param name: the thread's.
    :param at_once: a path whose requests have a thread of their own, so that no other request keeps them waiting.
    :param where: ``unix_socket`` and ``unix_socket_perms``, or ``host`` and ``port``, as waitress calls them.
    :raises OSError: if a socket can't be had.
    :raises ValueError: if a host name has no address.
    """

    def __init__(self, application: Application, name: str, *, at_once: str = "", **where: object) -> None:
        self._map: dict[int, Any] = {}
        self._pools = _Pools(at_once)
        settings = Adjustments(**where, **_BOUNDS)
        try:
            if settings.unix_socket:
                kinds = [(_UnixServer, (socket.AF_UNIX, socket.SOCK_STREAM, None, None))]
            else:
                kinds = [(_TcpServer, address) for address in settings.listen]
            self._listeners = [
                kind(application, self._map, dispatcher=self._pools, adj=settings, sockinfo=address)
                for kind, address in kinds
            ]
        except BaseException:
            wasyncore.close_all(self._map, ignore_all=True)
            raise
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def port(self) -> int:
        """The TCP port that it listens on, which is any free one where 0 was asked for."""
        return int(self._listeners[0].effective_port)

    def start(self) -> None:
        """Answer from now on."""
        self._pools.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop answering, and close every socket. A server that was never started can be stopped, too."""
        if not self._thread.is_alive():
            wasyncore.close_all(self._map, ignore_all=True)
            return
        self._pools.shutdown()
        # Closed by their own thread: that one would else go on to poll descriptors that are others' by then.
        in_the_loop(self._listeners[0].trigger, self._close)
        self._thread.join(5.0)

    def _run(self) -> None:
        while self._map:
            # Only connections have limits of time that have to be looked after.
            wasyncore.poll2(LOOK_AFTER if _channels(self._map) else REST, self._map)

    def _close(self) -> None:
        # Browsers and Prometheus keep their connections, and the loop ends with the last one.
        for channel in _channels(self._map):
            channel.handle_close()
        for listener in self._listeners:
            listener.close()


class _Pools:
    """The threads that answer, as waitress's servers see them: one task dispatcher.

    Refusals cost little, so the thread of the path that is answered at once makes them, too.

    :param at_once: the path that has a thread of its own.
    """

    def __init__(self, at_once: str) -> None:
        self.at_once = at_once
        self._most, self._own = ThreadedTaskDispatcher(), ThreadedTaskDispatcher()

    def start(self) -> None:
        self._most.set_thread_count(THREADS)
        self._own.set_thread_count(1)

    def add_task(self, channel: _Channel) -> None:
        request = channel.requests[0]
        (self._own if request.error or self.is_at_once(request) else self._most).add_task(channel)

    def is_at_once(self, request: Any) -> bool:
        """Whether the request has a thread of its own."""
        return bool(self.at_once) and getattr(request, "path", "") == self.at_once

    def shutdown(self) -> None:
        self._most.shutdown(timeout=2)
        self._own.shutdown(timeout=2)


class _Asks(IntEnum):
    """What is asked for on a connection; the greater, the later it is closed."""

    NOTHING = 0
    SOMETHING = 1
    AT_ONCE = 2


class _Refused(Error):  # type: ignore[misc]  # waitress has no types
    """An answer that says why a request gets none of the application."""

    def to_response(self, ident: str | None = None) -> tuple[str, list[tuple[str, str]], bytes]:
        content = json.dumps({"error": self.body}).encode()
        return f"{self.code} {self.reason}", [("Content-Type", "application/json")], content


class _BodyRefused(_Refused):
    """The answer to a request that has a body."""

    code = 413
    reason = "Content Too Large"


class _TooMany(_Refused):
    """The answer to a request of a client that waits for many answers already."""

    code = 503
    reason = "Service Unavailable"


class _Parser(HTTPRequestParser):  # type: ignore[misc]
    """Reads a request's headers, and refuses a body instead of reading it."""

    body_rcv: Any
    content_length: int
    expect_continue: bool

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        if self.chunked or self.content_length > 0 or "TRANSFER_ENCODING" in self.headers:
            self.error = _BodyRefused("a request with a body is refused unread: no request here has one")
            # Without a receiver of a body, and without bytes to come, the request is complete.
            self.body_rcv, self.content_length, self.expect_continue = None, 0, False


class _Channel(HTTPChannel):  # type: ignore[misc]
    """One connection.

    :ivar peer: who is at the other end; connections of one client have the same.
    :ivar is_shut: whether it is about to be closed.
    :ivar kept: bytes of the answer that are in memory, those that the client has taken included, until it has all.
    :ivar waits_since: since when a whole request is waited for, or the answer is being taken; infinite while a thread
        makes the answer.
    """

    parser_class = _Parser
    request: Any
    will_close: bool

    def __init__(self, server: Any, sock: socket.socket, addr: Any, adj: Any, map: dict[int, Any], peer: str) -> None:
        self.is_shut = False
        self.kept = 0
        self.waits_since = time.monotonic()
        self.peer = peer
        super().__init__(server, sock, addr, adj, map=map)

    def received(self, data: bytes) -> bool:
        """Take what came, up to the end of one request; whatever stands behind that ends with the connection."""
        with self.requests_lock:
            if self.will_close or self.close_when_flushed:
                return False
            if self.request is None:
                self.request = self.parser_class(self.adj)
            consumed = self.request.received(data)
            if not self.request.completed:
                return True
            request, self.request = self.request, None
            if request.empty:
                self.will_close = True
                return False
            if consumed < len(data):
                request.headers["CONNECTION"] = "close"
            if not request.error and not self._pools.is_at_once(request) and self._client_asks() >= ASKING:
                request.error = _TooMany(f"this client waits for {ASKING} answers already: ask again when it has one")
            # Of a refusal there is no more to come than an answer to take.
            self.waits_since = time.monotonic() if request.error else math.inf
            self.requests.append(request)
            self.server.add_task(self)
        return True

    @property
    def _pools(self) -> _Pools:
        pools: _Pools = self.server.task_dispatcher
        return pools

    def _client_asks(self) -> int:
        """How many connections of this client wait for a thread to answer."""
        return sum(one.peer == self.peer and one.is_being_answered for one in _channels(self._map))

    @property
    def is_being_answered(self) -> bool:
        """Whether a thread makes the answer, or is about to."""
        return self.waits_since == math.inf

    @property
    def asks(self) -> _Asks:
        """What the client waits for.

        One that is refused, or does not take its answer, waits for nothing, whatever it has sent since.
        """
        if self.is_being_answered:
            return _Asks.AT_ONCE if any(map(self._pools.is_at_once, self.requests)) else _Asks.SOMETHING
        has_answer = self.requests or self.total_outbufs_len
        return _Asks.NOTHING if has_answer else _unread(self.socket, self._pools.at_once)

    def service(self) -> None:
        """Answer the request; called by a thread of a pool."""
        request, self.kept = self.requests[0], 0
        try:
            super().service()
        finally:
            with self.requests_lock:
                # The client may have had its answer, and another thread its next request, before this thread is done.
                if not self.requests or self.requests[0] is request:
                    self.waits_since = time.monotonic()

    def write_soon(self, data: Any) -> int:
        """Have something sent; called by a thread of a pool."""
        written: int = super().write_soon(data)
        self.kept += written
        return written

    def is_overdue(self) -> bool:
        """Whether the client has taken too long to ask, or to take its answer."""
        limit = ANSWER_TIME if self.total_outbufs_len else REQUEST_TIME
        return time.monotonic() - self.waits_since > limit

    def shut(self) -> None:
        """Have the connection closed in the next round of the polling thread, whether the client reads or not.

        A descriptor that were closed at once could be another connection's before this round's events are through,
        and that connection would get an event of this one.
        """
        self.is_shut = self.will_close = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class _Places:
    """What both kinds of listening sockets do beside waitress's own."""

    channel_class = _Channel
    adj: Any
    task_dispatcher: _Pools
    _map: dict[int, Any]
    accept: Callable[[], tuple[socket.socket, Any] | None]
    set_socket_options: Callable[[socket.socket], None]
    fix_addr: Callable[[Any], Any]
    next_channel_cleanup: float
    _looks_at = 0.0

    def handle_accept(self) -> None:
        """Accept the connections that wait, and have others of the same client make room where it has too many."""
        for peer, conn, addr in self._accepted():
            with contextlib.suppress(OSError):
                # The client of a TCP connection may be gone already.
                self.set_socket_options(conn)
            # WSGI's REMOTE_ADDR: a client of a Unix socket is its user, as the kernel knows it (SO_PEERCRED).
            address = (peer, None) if conn.family == socket.AF_UNIX else self.fix_addr(addr)
            self.channel_class(self, conn, address, self.adj, map=self._map, peer=peer)
            _make_room([channel for channel in _channels(self._map) if not channel.is_shut])

    def _accepted(self) -> list[tuple[str, socket.socket, Any]]:
        """The connections that wait and their clients, oldest first, :data:`SHARE` at most.

        Where there are more, the client that has the most of them loses one, chosen as in :func:`_make_room`. That
        costs little here. So the queue is empty again, and others find room in it, also where one client connects and
        goes away as fast as it can.
        """
        kept: list[tuple[str, socket.socket, Any]] = []
        for _ in range(BURST):
            try:
                found = self.accept()
            except OSError:
                # Out of descriptors, or a connection that broke meanwhile: the next round tries again.
                break
            if found is None:
                break
            kept.append((_peer(*found), *found))
            if len(kept) > SHARE:
                most = Counter(peer for peer, _, _ in kept).most_common(1)[0][0]
                theirs = [
                    (_unread(one, self.task_dispatcher.at_once), number)
                    for number, (peer, one, _) in enumerate(kept)
                    if peer == most
                ]
                _, dropped, _ = kept.pop(_first_to_go(theirs))
                dropped.close()
        return kept

    def maintenance(self, now: float) -> None:
        """Close what keeps too much, in each round of the polling thread, and about once a second what is overdue.

        waitress's own interval is by the wall clock: one that was set back would have nothing closed until it is there
        again.
        """
        self.next_channel_cleanup = 0.0
        _limit_waiting([one for one in _channels(self._map) if one.total_outbufs_len and not one.is_shut])
        if time.monotonic() < self._looks_at:
            return
        self._looks_at = time.monotonic() + LOOK_AFTER
        for channel in _channels(self._map):
            if channel.is_overdue():
                channel.shut()


class _TcpServer(_Places, TcpWSGIServer):  # type: ignore[misc]
    """Listens on an address."""


class _UnixServer(_Places, UnixWSGIServer):  # type: ignore[misc]
    """Listens on a Unix socket."""


def _channels(sockets: dict[int, Any]) -> list[_Channel]:
    return [one for one in sockets.values() if isinstance(one, _Channel)]


def _make_room(channels: list[_Channel]) -> None:
    """Close one connection where there are too many of them, or of one client; the newest one is the last of the list.

    The client with the most connections gives one up: that on which nothing is asked, or no answer is taken, for the
    longest time; else its newest one, and one whose request is answered at once only where there is no other.
    """
    peer, most = Counter(channel.peer for channel in channels).most_common(1)[0]
    if most <= SHARE and len(channels) <= PLACES:
        return
    theirs = [(channel.asks, channel) for channel in channels if channel.peer == peer]
    # Stable: those that ask for something stay in the order in which they came.
    theirs.sort(key=lambda one: math.inf if one[0] else one[1].waits_since)
    _first_to_go(theirs).shut()


def _limit_waiting(channels: list[_Channel]) -> None:
    """Close connections where too much waits to be taken on them.

    The client on whose connections the most waits gives up the one whose answer has waited longest.
    """
    while len(channels) > 1 and sum(channel.kept for channel in channels) > MOST_WAITING:
        waiting = Counter[str]()
        for channel in channels:
            waiting[channel.peer] += channel.kept
        peer = waiting.most_common(1)[0][0]
        slowest = min((one for one in channels if one.peer == peer), key=lambda one: one.waits_since)
        slowest.shut()
        channels.remove(slowest)


def _first_to_go(connections: Sequence[tuple[_Asks, T]]) -> T:
    """Which connection of a client is closed: the first that asks for nothing, or else the last that asks for least.

    :param connections: what each asks for; at least one.
    """
    least = min(asks for asks, _ in connections)
    those = [one for asks, one in connections if asks == least]
    return those[-1 if least else 0]


def _unread(connection: socket.socket, at_once: str) -> _Asks:
    """What a request asks for whose headers have come on the connection, and were not read yet."""
    try:
        first = connection.recv(_FIRST_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return _Asks.NOTHING
    if b"\r\n\r\n" not in first:
        return _Asks.NOTHING
    return _Asks.AT_ONCE if at_once and first.startswith(f"GET {at_once} ".encode()) else _Asks.SOMETHING


def _peer(sock: socket.socket, address: Any) -> str:
    """The client at the other end of a connection."""
    return _user(sock) if sock.family == socket.AF_UNIX else _client(str(address[0]))


def in_the_loop(trigger: Any, action: Callable[[], None]) -> None:
    """Have a server's loop do something, such as closing all, as soon as it is awake.

    The loop waits for the lock before it acts. So it can't have closed the pipe that wakes it before that is written
    to, with ``pull_trigger(action)`` it can: what has the descriptor's number by then would be written to.

    :param trigger: of a waitress server.
    """
    with trigger.lock:
        trigger.thunks.append(action)
        trigger.pull_trigger()


def user(uid: int) -> str:
    """What WSGI's ``REMOTE_ADDR`` is for a user who connected to a Unix socket."""
    return f"user {uid}"


def _user(sock: socket.socket) -> str:
    """The user who connected to a Unix socket."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    return user(_PEER_CREDENTIALS.unpack(credentials)[1])


def _client(address: str) -> str:
    """Whose address that is: a host has all of loopback, and all of an IPv6 network of 64 bits."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    if found.is_loopback:
        return "loopback"
    return str(ipaddress.ip_network((found, 64 if found.version == 6 else 32), strict=False))
