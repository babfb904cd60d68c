# SPDX-License-Identifier: Apache-2.0
"""What the agent has counted of each instance, asked over its Unix socket.

With the standard library alone: Ceilometer's environment has no more that could ask.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATH = "/v1/telemetry/hardware-events"

TIMEOUT = 5.0
"""Seconds until the whole answer is there. The agent answers from memory, or after a look of some milliseconds."""

BUSY_PAUSE = 0.05
"""Seconds until a full queue of connections is tried again."""

LONGEST_ANSWER = 16 << 20
"""Bytes: a thousand VMs are told in half a million."""

NEVER_OLD = 15.0
"""Seconds up to which counts are never called old."""


class NoCounts(Exception):
    """There are no counts now; the text says why, and what mends it."""


@dataclass(frozen=True, slots=True)
class Executed:
    """What one instance has executed.

    :ivar counts: by event; empty where it is not counted.
    :ivar since: when it began to be counted, in seconds since 1970.
    :ivar share: how much of the time its tasks had the processor's counters; below 1, the counts are estimates.
    :ivar reason: why perf does not count it; empty where it does.
    :ivar source: who counted: ``perf``, or ``aet``, the processor's packages, which count cycles alone.
    """

    counts: Mapping[str, int | float]
    since: float | None = None
    share: float | None = None
    reason: str = ""
    source: str = "perf"


@dataclass(frozen=True, slots=True)
class Look:
    """What the agent has counted at one moment.

    :ivar read_at: that moment, by the monotonic clock.
    :ivar vms: each instance by its id.
    """

    read_at: float
    vms: Mapping[str, Executed]


def ask(path: str) -> Look:
    """Ask the agent.

    :param path: its socket.
    :raises NoCounts: if there is no answer, or the agent counts nothing.
    """
    answer = _get(path)
    try:
        unavailable, age, interval = answer["unavailable"], answer["age_seconds"], float(answer["interval"])
        if unavailable:
            raise NoCounts(f"vmqos-agent counts nothing: {unavailable}")
        if age is None:
            raise NoCounts("vmqos-agent has counted nothing yet")
        if age > max(NEVER_OLD, 3 * interval):
            raise NoCounts(f"vmqos-agent last counted {age:.0f} s ago")
        return Look(time.monotonic() - age, {uuid: _executed(vm) for uuid, vm in answer["vms"].items()})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NoCounts(f"what answers on {path} is not vmqos-agent of this release: {error!r}") from error


def _executed(vm: Mapping[str, Any]) -> Executed:
    counts = {event: count for event, count in vm["counts"].items() if isinstance(count, int | float)}
    # An earlier agent knows perf alone.
    return Executed(counts, vm["since"], vm["share"], str(vm["reason"]), str(vm.get("source", "perf")))


def _get(path: str) -> Any:
    try:
        answer = http.client.HTTPResponse(_Received(_receive(path)))  # type: ignore[arg-type]
        answer.begin()
        told = json.loads(answer.read())
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NoCounts(f"vmqos-agent does not run, or [vmqos] agent_socket is not its socket: {path}") from error
    except PermissionError as error:
        raise NoCounts(f"ceilometer-polling may not ask {path}: see [api] socket_group in vmqos.conf") from error
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        raise NoCounts(f"vmqos-agent does not answer on {path}: {error}") from error
    if answer.status == 404:
        raise NoCounts("vmqos-agent is of a release that counts nothing of this")
    if answer.status != 200:
        raise NoCounts(f"vmqos-agent can't answer: HTTP {answer.status}")
    return told


def _receive(path: str) -> bytes:
    """The whole answer with its header: as HTTP/1.0 has it, it ends with the connection.

    It is read before it is understood, so that one limit of time and one of bytes bound all of it.
    """
    until, received = time.monotonic() + TIMEOUT, bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        _connect(connection, path, until)
        connection.settimeout(max(BUSY_PAUSE, until - time.monotonic()))
        connection.sendall(f"GET {PATH} HTTP/1.0\r\nHost: vmqos-agent\r\n\r\n".encode())
        while (left := until - time.monotonic()) > 0:
            connection.settimeout(left)
            if not (piece := connection.recv(1 << 16)):
                return bytes(received)
            received += piece
            if len(received) > LONGEST_ANSWER:
                raise NoCounts(f"{path} answers with more than {LONGEST_ANSWER} bytes")
    raise TimeoutError(f"the answer takes longer than {TIMEOUT:g} s")


def _connect(connection: socket.socket, path: str, until: float) -> None:
    """Connect, and try again while others fill the agent's queue of connections.

    A connect with a time limit is refused at once there, with ``EAGAIN`` (``unix_stream_connect`` in
    net/unix/af_unix.c): Python has the socket not block.

    :param until: when to give up, by the monotonic clock.
    """
    connection.settimeout(TIMEOUT)
    while True:
        try:
            connection.connect(path)
            return
        except BlockingIOError:
            if time.monotonic() + BUSY_PAUSE > until:
                raise TimeoutError(f"others fill its queue of connections for {TIMEOUT:g} s") from None
            time.sleep(BUSY_PAUSE)


class _Received:
    """What :class:`http.client.HTTPResponse` needs of a connection."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def makefile(self, _mode: str) -> io.BytesIO:
        """The answer as a file."""
        return io.BytesIO(self._text)
