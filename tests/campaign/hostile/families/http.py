# SPDX-License-Identifier: Apache-2.0
"""The agent's HTTP port and its Unix socket, as a local account without rights talks to them."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from tests.campaign.hostile import outsider
from tests.campaign.hostile.inputs import Act, Attacker, Family, Harm, Hold, Input, Refused
from tests.campaign.hostile.outsider import Line
from tests.campaign.hostile.stage import Stage

Place = str | int
"""The path of a Unix socket, or a TCP port on loopback."""

ANSWER_WITHIN = 2.0
"""Seconds that an attacker waits for an answer."""

LAST_SECONDS = 6.0
"""Seconds that an attack goes on which would last for ever."""

MEBIBYTE = 1 << 20


def get(path: str | bytes, *headers: str | bytes, method: str = "GET", host: str = "localhost") -> bytes:
    """A request."""
    lines = [f"{method} ".encode() + _bytes(path) + b" HTTP/1.1", f"Host: {host}".encode(), *map(_bytes, headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1")


def connect(place: Place) -> socket.socket:
    """A connection to the agent.

    :raises Refused: if the kernel or the agent refuses it.
    """
    family = socket.AF_INET if isinstance(place, int) else socket.AF_UNIX
    connection = socket.socket(family)
    connection.settimeout(ANSWER_WITHIN)
    try:
        connection.connect(("127.0.0.1", place) if isinstance(place, int) else place)
    except OSError as error:
        connection.close()
        raise Refused(f"connect: {error.strerror or error}") from error
    return connection


def send(line: Line, place: Place, request: bytes) -> None:
    """Send a request and read the answer."""
    with connect(place) as connection:
        with contextlib.suppress(OSError):
            # What is too long may be answered, and the connection closed, before all of it is sent.
            connection.sendall(request)
        answer = _answer(connection)
        if b"root:x:0:" in answer:
            raise Harm("the agent gave out /etc/passwd")
        if not answer:
            raise Refused("the connection was closed, or nothing was answered")
        status = answer.split(b"\r\n", 1)[0].decode("latin-1")[:60]
        if status.split(" ")[1:2] and status.split(" ")[1][:1] in "45":
            raise Refused(status)
        line.in_force(status)


def _answer(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(OSError):
        while len(found) < 65536 and (chunk := connection.recv(65536)):
            found += chunk
            if b"\r\n\r\n" in found:
                break
    return found


def keep_open(line: Line, place: Place, count: int, begin: bytes) -> None:
    """Open many connections that never finish their request."""
    held = []
    refused = ""
    for _ in range(count):
        try:
            held.append(connect(place))
            held[-1].sendall(begin)
        except (Refused, OSError) as error:
            refused = str(error)
            break
    line.in_force(f"{len(held)} of {count} connections {refused}")
    for connection in held:
        connection.close()


def trickle(line: Line, place: Place, count: int, begin: bytes, unit: bytes, pause: float) -> None:
    """Send many requests that never end, some bytes at a time; new ones take the place of those that are closed."""
    held: list[socket.socket] = []
    line.say()
    while not line.wait(pause):
        while len(held) < count:
            try:
                held.append(connect(place))
                held[-1].sendall(begin)
            except (Refused, OSError):
                break
        for connection in list(held):
            try:
                connection.sendall(unit)
            except OSError:
                connection.close()
                held.remove(connection)


def pour(line: Line, place: Place, begin: bytes, unit: bytes, count: int) -> None:
    """Send a request that is very long, as fast as it is taken; refused where the agent answers before its end."""
    with connect(place) as connection:
        connection.settimeout(LAST_SECONDS)
        line.say()
        sent, until = len(begin), time.monotonic() + LAST_SECONDS
        with contextlib.suppress(OSError):
            connection.sendall(begin)
            for _ in range(count):
                if time.monotonic() > until:
                    break
                connection.sendall(unit)
                sent += len(unit)


def never_read(line: Line, place: Place, connections: int, request: bytes, times: int) -> None:
    """Ask many questions, and read no answer."""
    held = []
    with contextlib.suppress(Refused, OSError):
        for _ in range(connections):
            held.append(connect(place))
            held[-1].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                held[-1].send(request * times)
    line.in_force(len(held))


def reconnect(line: Line, place: Place) -> None:
    """Connect and go away again, all the time."""
    line.say()
    until = time.monotonic() + LAST_SECONDS
    while time.monotonic() < until and not line.wait(0):
        with contextlib.suppress(Refused, OSError), connect(place) as connection:
            connection.sendall(b"GET /v1/vms")


def hammer(line: Line, place: Place, request: bytes) -> None:
    """Ask one question after the other, as fast as they are answered."""
    line.say()
    until = time.monotonic() + LAST_SECONDS
    while time.monotonic() < until and not line.wait(0):
        with contextlib.suppress(Refused, OSError), connect(place) as connection:
            connection.sendall(request)
            _answer(connection)


ODD_PATHS: dict[str, bytes] = {
    "a path that climbs": b"/../../../../etc/passwd",
    "a path that climbs, escaped": b"/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "a path that climbs, escaped twice": b"/%252e%252e/%252e%252e/etc/passwd",
    "a path that climbs with backslashes": b"/..\\..\\..\\etc\\passwd",
    "a path that climbs out of the page": b"/page/../../../../../etc/passwd",
    "a path of two slashes": b"//etc/passwd",
    "a path with a zero byte": b"/v1/vms%00/etc/passwd",
    "a path that is no UTF-8": b"/v1/vms/\xff\xfe%ff%fe",
    "a path of escape sequences": b"/v1/vms/%1b%5b2J%1b%5d0;x%07",
    "a path with line breaks": b"/v1/vms/%0d%0aSet-Cookie:%20x=1%0d%0a",
    "a path of 100 000 slashes": b"/" * 100_000,
    "a path of 1 MiB": b"/v1/vms/" + b"a" * MEBIBYTE,
    "a VM of 60 000 characters": b"/v1/vms/" + b"0" * 60_000,
    "a VM that is a path": b"/v1/vms/..%2f..%2f..%2fetc%2fpasswd",
    "an address of another host as path": b"http://example.invalid/v1/vms",
    "a star as path": b"*",
    "no path": b"",
    "a query of 100 000 ampersands": b"/v1/vms?" + b"&" * 100_000,
    "a query of 60 000 parameters": b"/v1/plan?" + b"spec=a&" * 8_000,
    "a query that is no UTF-8": b"/v1/plan?spec=%ff%fe%c0%80=%ff",
    "seconds that are no number": b"/v1/telemetry/history?seconds=nan",
    "infinite seconds": b"/v1/telemetry/history?seconds=inf",
    "seconds of 1e308": b"/v1/telemetry/history?seconds=1e308",
    "negative seconds": b"/v1/telemetry/history?seconds=-1e308",
    "seconds of 50 000 digits": b"/v1/telemetry/history?seconds=" + b"9" * 50_000,
    "seconds in another script": b"/v1/telemetry/history?seconds=%D9%A3",
    "a day of all VMs": b"/v1/telemetry/history?resolution=60&seconds=86400",
    "minutes that are no number": b"/v1/telemetry/history?resolution=nan",
    "history of 3 000 VMs": b"/v1/telemetry/history?" + b"vm=00000000&" * 3_000,
    "a plan of 5 000 digits": b"/v1/plan?spec=hw:cache_ways=" + b"9" * 5_000,
    "a plan of a negative number": b"/v1/plan?spec=hw:cache_ways=-1",
    "a plan of another script's digits": b"/v1/plan?spec=hw:cache_ways=%D9%A3",
    "a plan of 1e9 ways": b"/v1/plan?spec=hw:cache_ways=1000000000",
    "a plan with escape sequences": b"/v1/plan?spec=%1b%5b2J=%1b%5b31m",
    "a plan for CPUs without end": b"/v1/plan?spec=hw:cache_ways=1&spec=hw:cache_vcpus=0-999999999",
}

ODD_REQUESTS: dict[str, bytes] = {
    "POST": get("/v1/vms", "Content-Length: 0", method="POST"),
    "PUT": get("/v1/vms", "Content-Length: 2", method="PUT") + b"{}",
    "DELETE": get("/v1/vms", method="DELETE"),
    "PATCH": get("/v1/health", "Content-Length: 2", method="PATCH") + b"[]",
    "HEAD": get("/v1/vms", method="HEAD"),
    "HEAD of the metrics": get("/metrics", method="HEAD"),
    "OPTIONS": get("*", method="OPTIONS"),
    "TRACE": get("/v1/vms", method="TRACE"),
    "CONNECT": get("example.invalid:443", method="CONNECT"),
    "a method in lower case": get("/v1/vms", method="get"),
    "a method of 60 000 letters": get("/v1/vms", method="A" * 60_000),
    "a method of control characters": get("/v1/vms", method="\x1b[2J"),
    "a host of another site": get("/v1/vms", host="rebinding.example"),
    "a host of escape sequences": get("/v1/vms", host="\x1b[2J"),
    "a host of 60 000 letters": get("/v1/vms", host="a" * 60_000),
    "no host": b"GET /v1/vms HTTP/1.1\r\n\r\n",
    "two hosts": get("/v1/vms", "Host: rebinding.example"),
    "a body in a GET": get("/v1/vms", "Content-Length: 10") + b"0123456789",
    "a body of negative length": get("/v1/vms", "Content-Length: -1", method="POST"),
    "a body of 2^64 bytes": get("/v1/vms", "Content-Length: 18446744073709551616", method="POST"),
    "a body of 5 000 digits' length": get("/v1/vms", "Content-Length: " + "9" * 5_000, method="POST"),
    "two lengths of a body": get("/v1/vms", "Content-Length: 1", "Content-Length: 2", method="POST") + b"ab",
    "a body with a length and chunks": get("/v1/vms", "Content-Length: 4", "Transfer-Encoding: chunked", method="POST")
    + b"0\r\n\r\nGET /v1/vms HTTP/1.1\r\n\r\n",
    "a chunk of a huge size": get("/v1/vms", "Transfer-Encoding: chunked", method="POST") + b"ffffffffffffffff\r\na",
    "a chunk of no size": get("/v1/vms", "Transfer-Encoding: chunked", method="POST") + b"\r\n\r\n",
    "a chunk's size with an extension of 60 000 bytes": get("/v1/vms", "Transfer-Encoding: chunked", method="POST")
    + b"1;"
    + b"x" * 60_000
    + b"\r\n",
    "an unknown transfer encoding": get("/v1/vms", "Transfer-Encoding: gzip, identity, x", method="POST"),
    "a header without a colon": get("/v1/vms", "no colon"),
    "a header of zero bytes": get("/v1/vms", b"X: \0\0\0"),
    "a header that is continued": get("/v1/vms", "X: a\r\n b\r\n\tc"),
    "a header that is no UTF-8": get("/v1/vms", b"X-\xff: \xff\xfe"),
    "a header of 1 MiB": get("/v1/vms", b"X: " + b"a" * MEBIBYTE),
    "10 000 headers": get("/v1/vms", *(f"X-{number}: 1" for number in range(10_000))),
    "an Accept of 100 000 kinds": get("/metrics", "Accept: " + "a/b," * 15_000),
    "an Accept of nonsense": get("/metrics", "Accept: ;;;q=nan,*/*;q=\xff,,,/"),
    "an Accept-Encoding of nonsense": get("/metrics", "Accept-Encoding: gzip;q=inf, \x7f"),
    "a range of bytes": get("/v1/vms", "Range: bytes=0-,-1,0-0,5-2,18446744073709551616-"),
    "a condition of 60 000 bytes": get("/", "If-None-Match: " + '"x",' * 15_000),
    "an expectation": get("/v1/vms", "Expect: 100-continue", "Content-Length: 1000000", method="POST"),
    "an unknown expectation": get("/v1/vms", "Expect: the-unexpected", "Content-Length: 1", method="POST"),
    "an upgrade to a WebSocket": get(
        "/v1/vms",
        *("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eDEyMzQ="),
    ),
    "an upgrade to HTTP/2": get("/v1/vms", "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: A"),
    "the beginning of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "HTTP/0.9": b"GET /v1/vms\r\n",
    "HTTP/9.9": b"GET /v1/vms HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "a version of 60 000 digits": b"GET /v1/vms HTTP/" + b"1" * 60_000 + b"\r\n\r\n",
    "a TLS greeting": bytes.fromhex("16030100c4010000c00303") + bytes(range(190)),
    "an SSH greeting": b"SSH-2.0-OpenSSH_9.2\r\n",
    "bytes of every value": bytes(range(256)) * 16,
    "zero bytes": bytes(65_536),
    "line breaks": b"\r\n" * 30_000,
    "line feeds": b"\n" * 60_000,
    "500 requests at once": get("/v1/health") * 500,
    "a request behind a request that is refused": get("/v1/vms", method="POST") + get("/metrics"),
}

PLACES: dict[str, Callable[[Stage], Place]] = {
    "port": lambda stage: stage.port,
    "socket": lambda stage: str(stage.agent.socket),
}
"""The gateway's port and the agent's socket."""

GATEWAYS_SOCKET = "gateway's socket"

CLOSED_PLACES: dict[str, Callable[[Stage], Place]] = {
    GATEWAYS_SOCKET: lambda stage: str(stage.agent.socket.with_name("gateway.sock")),
}
"""The agent's other socket, which only the gateway may use."""

FLOODS: dict[str, tuple[outsider.Attack, tuple[object, ...]]] = {
    "150 half-open connections": (keep_open, (150, b"")),
    "150 half requests": (keep_open, (150, b"GET /v1/health HTTP/1.1\r\nHost: local")),
    "1 000 half-open connections": (keep_open, (1000, b"")),
    "1 000 half requests": (keep_open, (1000, b"GET /v1/health HTTP/1.1\r\nHost: local")),
    "60 requests a byte at a time": (trickle, (60, b"GET /v1/health HTTP/1.1\r\nX: ", b"a", 0.3)),
    "60 bodies a byte at a time": (trickle, (60, get("/v1/vms", "Content-Length: 100000", method="POST"), b"a", 0.3)),
    "200 headers without end": (trickle, (200, b"GET /v1/health HTTP/1.1\r\n", b"X: a\r\n", 0.5)),
    "a body of 100 MiB": (
        pour,
        (get("/v1/vms", "Content-Length: 104857600", method="POST"), bytes(MEBIBYTE), 100),
    ),
    "a body of 100 MiB in chunks": (
        pour,
        (
            get("/v1/vms", "Transfer-Encoding: chunked", method="POST"),
            b"100000\r\n" + bytes(MEBIBYTE) + b"\r\n",
            100,
        ),
    ),
    "a body in chunks of one byte": (
        pour,
        (get("/v1/vms", "Transfer-Encoding: chunked", method="POST"), b"1\r\na\r\n" * 1000, 1000),
    ),
    "headers without end": (pour, (b"GET /v1/vms HTTP/1.1\r\n", b"X-Header: value\r\n" * 1000, 1000)),
    "a path without end": (pour, (b"GET /", b"a" * 65_536, 1000)),
    "100 000 requests on a connection": (pour, (b"", get("/v1/vms") * 100, 1000)),
    "answers that are never read": (never_read, (50, get("/metrics"), 200)),
    "connections that come and go": (reconnect, ()),
    "metrics without a pause": (hammer, (get("/metrics"),)),
    "groups without a pause": (hammer, (get("/v1/groups"),)),
    "a plan without a pause": (hammer, (get("/v1/plan?spec=hw:cache_ways=2"),)),
}


def _held(stage: Stage, attack: outsider.Attack, where: str, arguments: tuple[object, ...], uid: int) -> Hold:
    with outsider.attacking(attack, (PLACES | CLOSED_PLACES)[where](stage), *arguments, uid=uid):
        yield


def held(attack: outsider.Attack, where: str, *arguments: object, uid: int = outsider.READER) -> Act:
    """An account attacks one of the addresses."""
    return partial(_held, attack=attack, where=where, arguments=arguments, uid=uid)


def unlink(line: Line, path: str) -> None:
    """Remove the agent's socket."""
    try:
        os.unlink(path)
    except OSError as error:
        raise Refused(f"unlink: {error.strerror}") from error


def replace(line: Line, path: str) -> None:
    """Put a socket of one's own in the place of the agent's."""
    try:
        with socket.socket(socket.AF_UNIX) as own:
            own.bind(f"{path}.own")
        os.rename(f"{path}.own", path)
    except OSError as error:
        raise Refused(f"bind beside it: {error.strerror}") from error


def take_port(line: Line, port: int) -> None:
    """Listen on the agent's port, too."""
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            own.bind(("127.0.0.1", port))
            own.listen()
        except OSError as error:
            raise Refused(f"bind: {error.strerror}") from error
        raise Harm("another account listens on the agent's port")


def read(line: Line, path: str) -> None:
    """Read a file of the agent's."""
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise Refused(f"open: {error.strerror}") from error
    line.say("it could be read")


def _numbered(inputs: Iterable[tuple[str, Act]], label: str, size: int) -> Iterator[Input]:
    for number, (name, act) in enumerate(inputs):
        yield Input(name, Attacker.ACCOUNT, act, f"{label} {number // size + 1}")


def _inputs() -> Iterator[Input]:
    for where in PLACES:
        requests = {name: get(path) for name, path in ODD_PATHS.items()} | ODD_REQUESTS
        each = [(f"{where}: {name}", held(send, where, request)) for name, request in requests.items()]
        yield from _numbered(each, f"{where}, requests", 30)
        for name, (attack, arguments) in FLOODS.items():
            act = held(attack, where, *arguments)
            # On both addresses at the same time.
            yield Input(f"{where}: {name}", Attacker.ACCOUNT, act, name)
    stranger = held(send, "socket", get("/v1/vms"), uid=outsider.STRANGER)
    yield Input("an account that may not use the socket", Attacker.ACCOUNT, stranger, "the socket as a file")
    for name, path, method in (
        ("what OpenStack is told asked for", "/v1/openstack", "GET"),
        ("a flavor told", "/v1/flavors/38c43823-3651-469c-b344-166d1c87d77b?process=1-1&spec=hw:cache_ways=9", "PUT"),
    ):
        act = held(send, GATEWAYS_SOCKET, get(path, method=method))
        yield Input(f"{GATEWAYS_SOCKET}: {name}", Attacker.ACCOUNT, act, "the socket as a file")
    for where in PLACES:
        act = held(
            send, where, get("/v1/flavors/38c43823-3651-469c-b344-166d1c87d77b?spec=hw:cache_ways=9", method="PUT")
        )
        yield Input(f"{where}: a flavor told", Attacker.ACCOUNT, act, "the socket as a file")
    for name, attack in (("the socket removed", unlink), ("the socket replaced", replace)):
        yield Input(name, Attacker.ACCOUNT, held(attack, "socket"), "the socket as a file")
    yield Input("the port taken as well", Attacker.ACCOUNT, held(take_port, "port"), "the socket as a file")


FAMILY = Family("http", "HTTP on the gateway's port and on the agent's Unix sockets", tuple(_inputs()))
