# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ceilometer_pollster import agent_api
from ceilometer_pollster.agent_api import PATH, Executed, NoCounts, ask
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent, serving


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("s") / "a")


@pytest.fixture
def agent(path: str) -> Iterator[FakeAgent]:
    made = FakeAgent()
    made.answers[PATH] = examples.hardware_events()
    with serving(made, path):
        yield made


def test_what_the_agent_has_counted_is_told_with_its_age(agent: FakeAgent, path: str) -> None:
    look = ask(path)
    assert 0.5 <= time.monotonic() - look.read_at < 60
    counts = {"cycles": 4 * 10**15, "instructions": 10**15, "cache_references": 10**9, "cache_misses": 10**6}
    assert look.vms[examples.WEB] == Executed(counts, 1793999000.0, 1.0)
    assert look.vms[examples.PLAIN] == Executed({}, reason="it has 2000 tasks")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"unavailable": "switched off"}, "vmqos-agent counts nothing: switched off"),
        ({"age_seconds": None}, "vmqos-agent has counted nothing yet"),
        ({"age_seconds": 16.0}, "vmqos-agent last counted 16 s ago"),
        ({"age_seconds": "x"}, "is not vmqos-agent of this release"),
        ({"vms": []}, "is not vmqos-agent of this release"),
        ({"vms": {"u": {}}}, "is not vmqos-agent of this release"),
    ],
)
def test_what_is_no_count_of_now_is_none(agent: FakeAgent, path: str, changes: Any, text: str) -> None:
    agent.answers[PATH] |= changes
    with pytest.raises(NoCounts, match=text):
        ask(path)


def test_counts_of_rare_looks_are_not_old(agent: FakeAgent, path: str) -> None:
    agent.answers[PATH] |= {"age_seconds": 100.0, "interval": 60.0}
    assert ask(path).vms


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (("404 Not Found", b'{"error": "?"}'), "of a release that counts nothing of this"),
        (("503 Service Unavailable", b"{}"), "can't answer: HTTP 503"),
        (("200 OK", b"no JSON"), "does not answer on"),
        (("200 OK", b"[" * 100_000), "does not answer on"),
        (("200 OK", b"[]"), "is not vmqos-agent of this release"),
    ],
)
def test_an_answer_that_is_none_says_what_is_wrong(
    agent: FakeAgent, path: str, answer: tuple[str, bytes], text: str
) -> None:
    agent.answers[PATH] = lambda query: answer
    with pytest.raises(NoCounts, match=text):
        ask(path)


def test_an_answer_without_end_is_not_read_to_its_end(
    agent: FakeAgent, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_api, "LONGEST_ANSWER", 10)
    with pytest.raises(NoCounts, match="more than 10 bytes"):
        ask(path)


def test_where_no_agent_is_it_is_said(path: str) -> None:
    with pytest.raises(NoCounts, match="vmqos-agent does not run"):
        ask(path)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        with pytest.raises(NoCounts, match="vmqos-agent does not run"):
            ask(path)


def test_an_agent_that_does_not_answer_is_given_up(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_api, "TIMEOUT", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        with pytest.raises(NoCounts, match="does not answer"):
            ask(path)


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.0 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def test_an_answer_that_drips_is_given_up_in_time(path: str, begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_api, "TIMEOUT", 0.3)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(begin)
                for _ in range(500):
                    connection.sendall(b"x")
                    time.sleep(0.02)

        dripping = threading.Thread(target=drip)
        dripping.start()
        asked = time.monotonic()
        with pytest.raises(NoCounts, match=r"timed out|takes longer"):
            ask(path)
        assert time.monotonic() - asked < 9, "the whole answer would take ten seconds"
        dripping.join()


@contextlib.contextmanager
def full_queue(path: str) -> Iterator[socket.socket]:
    """A socket that takes no connection more, until one is taken from its queue."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        server.bind(path)
        server.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                client.setblocking(False)
                client.connect(path)
        yield server


def test_a_full_queue_of_connections_is_tried_again_until_there_is_room(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = list[float]()
    with full_queue(path) as server:

        def make_room(seconds: float) -> None:
            tries.append(seconds)
            if len(tries) == 3:
                server.accept()[0].close()

        monkeypatch.setattr(agent_api.time, "sleep", make_room)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            agent_api._connect(connection, path, time.monotonic() + 60)
            assert connection.getpeername() == path
    assert len(tries) == 3


def test_a_queue_of_connections_that_stays_full_is_given_up_in_time(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_api, "TIMEOUT", 0.3)
    with full_queue(path), pytest.raises(NoCounts, match=r"others fill its queue of connections for 0\.3 s"):
        ask(path)


def test_a_socket_that_may_not_be_used_names_what_lets_one_in(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    def refuse(self: socket.socket, address: str) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(NoCounts, match="socket_group"):
        ask(path)


def test_nothing_but_the_standard_library_is_needed() -> None:
    text = Path(agent_api.__file__).read_text()
    assert "vmqos" not in {line.split()[1].partition(".")[0] for line in text.splitlines() if line.startswith("from ")}
