# SPDX-License-Identifier: Apache-2.0
"""The server's bounds, each tried on a real socket."""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.eventually import eventually
from vmqos.daemon import bounded_server
from vmqos.daemon.bounded_server import ASKING, PLACES, SHARE, BoundedServer

Connect = Callable[[], socket.socket]
REQUEST = b"GET /fast HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = 32 << 20


class Served:
    """A server with a few paths.

    :ivar held: until it is set, ``/held`` does not answer.
    :ivar asked: the path of each request that reached the application.
    """

    def __init__(self) -> None:
        self.held = threading.Event()
        self.asked: list[str] = []
        self.server: BoundedServer | None = None

    @property
    def being_answered(self) -> int:
        """The connections whose request the server has, and has not answered."""
        return sum(math.isinf(one.waits_since) for one in self.channels())

    def channels(self) -> list[bounded_server._Channel]:
        """The server's connections."""
        assert self.server is not None
        return list(bounded_server._channels(dict(self.server._map)))

    def has_answered(self, count: int) -> bool:
        return len(self.asked) == count and not self.being_answered

    def application(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        self.asked.append(path)
        if path == "/held":
            self.held.wait(120)
        body = b"x" * LARGE if path == "/large" else b"well"
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.held.set()


@pytest.fixture(params=["unix", "tcp"])
def connect(request: pytest.FixtureRequest, served: Served, tmp_path: Path) -> Iterator[Connect]:
    """Connects to a server of either kind; every connection is closed at the test's end."""
    opened: list[socket.socket] = []
    if request.param == "unix":
        path = str(tmp_path / "socket")
        server = BoundedServer(served.application, "t", at_once="/once", unix_socket=path, unix_socket_perms="600")
        kind: tuple[int, Any] = socket.AF_UNIX, path
    else:
        server = BoundedServer(served.application, "t", at_once="/once", host="127.0.0.1", port=0)
        kind = socket.AF_INET, ("127.0.0.1", server.port)
    server.start()
    served.server = server

    def connect() -> socket.socket:
        made = socket.socket(kind[0])
        opened.append(made)
        made.settimeout(60)
        made.connect(kind[1])
        return made

    yield connect
    for one in opened:
        one.close()
    served.held.set()
    server.stop()


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """The status and the body of the next answer."""
    got = http.client.HTTPResponse(connection)
    got.begin()
    return got.status, got.read()


def ask(connect: Connect, path: str = "/fast") -> tuple[int, bytes]:
    connection = connect()
    connection.sendall(REQUEST.replace(b"/fast", path.encode()))
    return answer(connection)


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes the connection, within the socket's timeout, without another word."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def is_at_its_end(connection: socket.socket) -> bool:
    """Whether the server has closed the connection, which does not block."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def open_files() -> set[str]:
    """The files that this process has open, those without a name included."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return {name for name in found if name.startswith("/tmp")}


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (b"Content-Length: 104857600\r\n", b"x" * 65536),
        (b"Content-Length: 1\r\n", b""),
        (b"Transfer-Encoding: chunked\r\n", b"10000\r\n" + b"x" * 4096),
        (b"Content-Length: 5000000\r\nExpect: 100-continue\r\n", b""),
    ],
)
@pytest.mark.parametrize("method", [b"POST", b"GET"])
def test_a_body_is_refused_before_it_is_there(
    connect: Connect, served: Served, method: bytes, headers: bytes, body: bytes
) -> None:
    connection = connect()
    before = open_files()
    connection.sendall(method + b" /fast HTTP/1.1\r\n" + headers + b"\r\n" + body)
    status, said = answer(connection)
    assert status == 413
    assert "refused unread" in json.loads(said)["error"]
    assert is_closed(connection)
    assert open_files() == before, "nothing is written to the disk"
    assert served.asked == []


def test_a_request_that_comes_while_the_thread_of_the_one_before_it_tidies_up_is_being_answered(
    connect: Connect, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    waitress, ours, is_over = bounded_server.HTTPChannel.service, bounded_server._Channel.service, threading.Event()

    def tidy_up(channel: Any) -> None:
        waitress(channel)
        eventually(lambda: "/held" in served.asked)

    def service(channel: Any) -> None:
        ours(channel)
        is_over.set()

    monkeypatch.setattr(bounded_server.HTTPChannel, "service", tidy_up)
    monkeypatch.setattr(bounded_server._Channel, "service", service)
    connection = connect()
    connection.sendall(REQUEST)
    assert answer(connection) == (200, b"well")
    connection.sendall(REQUEST.replace(b"/fast", b"/held"))
    assert is_over.wait(60)
    assert served.being_answered == 1
    served.held.set()
    assert answer(connection) == (200, b"well")
    eventually(lambda: served.has_answered(2))


def test_headers_have_a_bound(connect: Connect, served: Served) -> None:
    connection = connect()
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            connection.sendall(b"GET / HTTP/1.1\r\nx: " + b"x" * 1000 + b"\r\n")
    with contextlib.suppress(ConnectionError):
        assert answer(connection)[0] == 431
    assert served.asked == []


def test_a_connection_is_used_again(connect: Connect) -> None:
    connection = connect()
    for _ in range(3):
        connection.sendall(REQUEST)
        assert answer(connection) == (200, b"well")


def test_a_request_that_comes_byte_by_byte_ends(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_server, "REQUEST_TIME", 1.0)
    connection = connect()
    connection.settimeout(0.1)
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        for byte in itertools.chain(b"GET / HTTP/1.1\r\n", itertools.repeat(ord("x"))):
            assert time.monotonic() - began < 60
            connection.sendall(bytes((byte,)))
            with contextlib.suppress(TimeoutError):
                if connection.recv(1) == b"":
                    break
    assert time.monotonic() - began > 0.9


def test_a_connection_on_which_nothing_is_asked_ends(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_server, "REQUEST_TIME", 1.0)
    idle, used = connect(), connect()
    used.sendall(REQUEST)
    assert answer(used) == (200, b"well")
    assert is_closed(idle) and is_closed(used)


def test_a_clock_that_is_set_back_lets_no_connection_stay(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_server, "REQUEST_TIME", 0.5)
    assert ask(connect) == (200, b"well")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 7200)
    silent = connect()
    silent.settimeout(15)
    assert is_closed(silent)


def test_an_answer_that_takes_long_is_waited_for(
    connect: Connect, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connect()
    connection.sendall(REQUEST.replace(b"fast", b"held"))
    eventually(lambda: served.being_answered == 1)
    monkeypatch.setattr(bounded_server, "REQUEST_TIME", 0.5)
    time.sleep(2.5)
    served.held.set()
    assert answer(connection) == (200, b"well")


def test_who_does_not_take_the_answer_is_cut_off(
    connect: Connect, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_server, "ANSWER_TIME", 1.0)
    connection = connect()
    before = open_files()
    connection.sendall(REQUEST.replace(b"fast", b"large"))
    eventually(lambda: served.asked == ["/large"])
    eventually(lambda: not served.channels() or any(one.total_outbufs_len for one in served.channels()))
    assert open_files() == before, "an answer that waits is not written to the disk"
    eventually(lambda: not served.channels())
    taken = 0
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(1 << 20):
            taken += len(chunk)
    assert taken < LARGE


def test_answers_that_nobody_takes_do_not_fill_the_memory(
    connect: Connect, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_server, "MOST_WAITING", 3 * LARGE + 65536)
    slow = []
    for number in range(8):
        slow.append(connect())
        slow[-1].sendall(REQUEST.replace(b"fast", b"large"))
        eventually(lambda: served.has_answered(number + 1))  # noqa: B023
    eventually(lambda: len(served.channels()) == 3)
    status, body = answer(slow[-1])
    assert (status, len(body)) == (200, LARGE), "the newest is not the one"
    status, body = ask(connect, "/large")
    assert (status, len(body)) == (200, LARGE)


def test_an_answer_that_is_larger_than_all_that_may_wait_is_sent_all_the_same(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_server, "MOST_WAITING", LARGE // 2)
    status, body = ask(connect, "/large")
    assert (status, len(body)) == (200, LARGE)


def test_requests_that_come_in_one_piece_block_no_thread(connect: Connect, served: Served) -> None:
    greedy = [connect() for _ in range(2 * bounded_server.THREADS)]
    for connection in greedy:
        connection.sendall(50 * REQUEST.replace(b"fast", b"large"))
    assert ask(connect) == (200, b"well")
    assert served.asked.count("/large") <= len(greedy), "one answer for each, and no more"


def test_130_connections_on_which_nothing_is_asked_keep_nobody_out(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who had to wait for a place of theirs would wait for that long.
    monkeypatch.setattr(bounded_server, "REQUEST_TIME", 120.0)
    half_open = [connect() for _ in range(130)]
    began = time.monotonic()
    assert ask(connect) == (200, b"well")
    assert time.monotonic() - began < 60, "on a machine that is busy"
    closed = 0
    for connection in half_open:
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            closed += connection.recv(1) == b""
    assert 130 - SHARE <= closed < 130


@contextlib.contextmanager
def flooded(served: Served, folder: Path, count: int) -> Iterator[tuple[BoundedServer, list[socket.socket]]]:
    """A server that is not started, so that so many connections stay in the kernel's queue, the oldest first."""
    path = str(folder / "socket")
    server = BoundedServer(served.application, "t", unix_socket=path, unix_socket_perms="600")
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(count)]
        for one in waiting:
            one.connect(path)
            one.setblocking(False)
        try:
            yield server, waiting
        finally:
            server.stop()


def test_a_round_empties_the_queue_of_one_who_connects_without_end_and_keeps_the_newest(
    served: Served, tmp_path: Path
) -> None:
    with flooded(served, tmp_path, 3 * SHARE) as (server, waiting):
        server._listeners[0].handle_accept()
        assert [one for one in waiting if is_at_its_end(one)] == waiting[: 2 * SHARE]


def test_one_who_connects_without_end_takes_no_place_of_another_client(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Connections of other users are not to be had in a unit test.
    users = itertools.chain(["another"], itertools.repeat("one who floods"))
    monkeypatch.setattr(bounded_server, "_user", lambda _: next(users))
    with flooded(served, tmp_path, 3 * SHARE) as (server, waiting):
        server._listeners[0].handle_accept()
        assert not is_at_its_end(waiting[0])


def test_a_request_that_waits_in_the_queue_is_answered_before_connections_without_one(
    served: Served, tmp_path: Path
) -> None:
    with flooded(served, tmp_path, 6 * SHARE) as (server, waiting):
        asking = waiting[0], waiting[4 * SHARE]
        for one in asking:
            one.settimeout(20)
            one.sendall(REQUEST)
        server.start()
        assert [answer(one) for one in asking] == 2 * [(200, b"well")]


def test_one_path_is_answered_whatever_holds_up_the_others(connect: Connect, served: Served) -> None:
    held = [connect() for _ in range(20)]
    for connection in held:
        connection.sendall(REQUEST.replace(b"fast", b"held"))
    began = time.monotonic()
    assert ask(connect, "/once") == (200, b"well")
    assert time.monotonic() - began < 60, "on a machine that is busy; the others are held for twice as long"
    served.held.set()
    assert [answer(connection) for connection in held] == 20 * [(200, b"well")]


def test_the_client_with_the_most_connections_makes_room_for_others(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who a client is is faked here: connections of other users and hosts are not to be had in a unit test."""
    names = itertools.chain(["modest"], itertools.repeat("greedy", PLACES), itertools.repeat("late"))
    for function in ("_user", "_client"):
        monkeypatch.setattr(bounded_server, function, lambda _: next(names))
    monkeypatch.setattr(bounded_server, "SHARE", 2 * PLACES)
    modest = connect()
    greedy = [connect() for _ in range(PLACES)]
    assert ask(connect) == (200, b"well")
    assert is_closed(greedy[0]) and is_closed(greedy[1])
    for connection in (modest, greedy[2], greedy[-1]):
        connection.sendall(REQUEST)
        assert answer(connection) == (200, b"well")


def test_a_connection_that_is_closed_takes_no_other_one_along(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever connects in the moment in which another connection is closed may get its descriptor."""
    for _ in range(6):
        monkeypatch.setattr(bounded_server, "REQUEST_TIME", 0.5)
        assert is_closed(connect())
        # However late the question comes.
        monkeypatch.setattr(bounded_server, "REQUEST_TIME", 60.0)
        assert ask(connect) == (200, b"well")


def test_where_every_other_connection_is_being_answered_the_newest_is_closed(
    connect: Connect, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_server, "ASKING", SHARE)
    held = [connect() for _ in range(SHARE)]
    for connection in held:
        connection.sendall(REQUEST.replace(b"fast", b"held"))
    eventually(lambda: served.being_answered == SHARE)
    assert is_closed(connect())
    served.held.set()
    assert answer(held[-1]) == (200, b"well")


def test_a_client_that_waits_for_many_answers_is_refused_more_and_still_gets_what_is_answered_at_once(
    connect: Connect, served: Served
) -> None:
    asking = REQUEST.replace(b"fast", b"held")
    held = [connect() for _ in range(ASKING)]
    for connection in held:
        connection.sendall(asking)
    eventually(lambda: served.being_answered == ASKING)
    for _ in range(3 * SHARE):
        refused = connect()
        refused.sendall(asking)
        assert ask(connect, "/once") == (200, b"well")
        status, said = answer(refused)
        assert status == 503
        assert f"waits for {ASKING} answers already" in json.loads(said)["error"]
        assert is_closed(refused)
    served.held.set()
    assert [answer(connection) for connection in held] == ASKING * [(200, b"well")]
    assert ask(connect) == (200, b"well"), "and afterwards it may ask again"


def test_who_takes_no_answer_makes_room_whatever_is_asked_behind_it(connect: Connect, served: Served) -> None:
    for number in range(SHARE):
        connect().sendall(2 * REQUEST.replace(b"fast", b"large"))
        eventually(functools.partial(served.has_answered, number + 1))
    for _ in range(SHARE):
        assert ask(connect) == (200, b"well")


def test_what_is_answered_at_once_is_the_last_to_lose_its_place_in_the_queue(served: Served, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    server = BoundedServer(served.application, "t", at_once="/once", unix_socket=path, unix_socket_perms="600")
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(6 * SHARE)]
        for one in waiting:
            one.settimeout(20)
            one.connect(path)
            one.sendall(REQUEST)
        for number in (4 * SHARE, -1):
            waiting[number].close()
            waiting[number] = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting[number].settimeout(20)
            waiting[number].connect(path)
            waiting[number].sendall(REQUEST.replace(b"fast", b"once"))
        server.start()
        try:
            assert [answer(waiting[number]) for number in (4 * SHARE, -1)] == 2 * [(200, b"well")]
        finally:
            server.stop()


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.9.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("192.0.2.7", "192.0.2.7/32"),
        ("::ffff:192.0.2.7", "192.0.2.7/32"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_client_is_a_host_by_its_address(address: str, client: str) -> None:
    assert bounded_server._client(address) == client


def test_a_client_on_the_unix_socket_is_a_user() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert bounded_server._user(one) == f"user {os.getuid()}"


def test_all_addresses_of_a_name_are_served_and_given_back() -> None:
    with contextlib.ExitStack() as held:
        port, addresses = hold_a_port_of("localhost", held)
        server = BoundedServer(Served().application, "t", host="localhost", port=port)
        server.start()
        for family, address in addresses:
            with socket.socket(family) as connection:
                connection.settimeout(60)
                connection.connect(address)
                connection.sendall(REQUEST)
                assert answer(connection) == (200, b"well")
        server.stop()
        for family, address in addresses:
            with socket.socket(family) as connection, pytest.raises(OSError):
                connection.connect(address)


def hold_a_port_of(host: str, held: contextlib.ExitStack) -> tuple[int, set[tuple[int, Any]]]:
    """A port that no other test gets on any address of a host name; families and addresses.

    Who asks for this port, and reuses addresses as servers do, gets it; who asks for any port gets another one.
    """
    for _ in range(100):
        port = 0
        with contextlib.ExitStack() as bound, contextlib.suppress(OSError):
            for family, *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
                one = bound.enter_context(socket.socket(family))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind((address[0], port))
                port = one.getsockname()[1]
            held.push(bound.pop_all())
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return port, {(family, address) for family, *_, address in found}
    raise AssertionError(f"no port is free on all addresses of {host}")


def test_a_loop_that_is_awake_already_does_not_close_what_is_about_to_wake_it(
    connect: Connect, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert served.server is not None
    trigger = served.server._listeners[0].trigger
    wake = trigger._physical_pull

    def wake_for_the_second_time() -> None:
        wake()
        time.sleep(0.2)
        wake()

    monkeypatch.setattr(trigger, "_physical_pull", wake_for_the_second_time)
    served.server.stop()
    assert not served.server._thread.is_alive()
