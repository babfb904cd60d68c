# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import json
import os
import socket as sockets
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.local_api import client as clients
from vmqos.local_api import exceptions
from vmqos.local_api.client import AgentClient


def test_every_resource_arrives_as_the_agent_sent_it(agent: FakeAgent, socket: str) -> None:
    client = AgentClient(socket)
    assert client.vms() == examples.vms()
    assert client.vm(examples.WEB)["task_list"] == examples.tasks(f"vmqos.{examples.WEB}")
    assert client.caches() == examples.caches()
    assert client.capabilities() == examples.capabilities()
    assert client.health() == examples.health()


def test_extra_specs_of_a_plan_arrive_unharmed(agent: FakeAgent, socket: str) -> None:
    specs = ["hw:cache_ways=3", "hw:cache_vcpus=0-3,^2", "weird key=a&b+c=ü"]
    assert AgentClient(socket).plan(specs) == examples.plan()
    assert agent.queries[-1] == {"spec": specs}


def test_what_was_found_of_a_vm_is_told_in_few_digits(agent: FakeAgent, socket: str) -> None:
    agent.answers[f"/v1/sizes/{examples.WEB}"] = {"uuid": examples.WEB}
    size = examples.found_size(at_least=True)
    size["curve"][1] |= {"missed": None, "traffic_part": 1 / 3, "slower": None}
    AgentClient(socket).tell_size(examples.WEB, 4321, size)
    assert agent.queries[-1] == {
        "pid": ["4321"], "ways": ["4"], "at_least": ["true"], "counted": ["true"], "steady": ["true"],
        "curve": ["2:0.9000:1.6102,3:0.3333,4:0.2000:1.0169,5:0.1800:1.0000"],
    }  # fmt: skip


def test_what_was_found_of_vms_arrives_as_the_agent_sent_it(agent: FakeAgent, socket: str) -> None:
    told = [{"uuid": examples.WEB, "found_at": 1794000000.5, **examples.found_size()}]
    agent.answers["/v1/sizes"] = {"sizes": told}
    assert AgentClient(socket).sizes() == told
    agent.answers["/v1/sizes"] = {"sizes": [{"uuid": examples.WEB}]}
    with pytest.raises(exceptions.NotOurApi):
        AgentClient(socket).sizes()


def test_fields_of_a_later_agent_are_kept(agent: FakeAgent, socket: str) -> None:
    agent.answers["/v1/health"] = examples.health() | {"mood": "sunny"}
    assert AgentClient(socket).health()["mood"] == "sunny"  # type: ignore[typeddict-item]


def test_an_error_carries_the_agents_own_words(agent: FakeAgent, socket: str) -> None:
    text = json.dumps({"error": "hw:cache_ways=two: write an integer, 1 or greater"}).encode()
    agent.answers["/v1/plan"] = lambda query: ("400 Bad Request", text)
    with pytest.raises(exceptions.AgentRefused, match=r"^hw:cache_ways=two: write an integer, 1 or greater$"):
        AgentClient(socket).plan(["hw:cache_ways=two"])
    text = json.dumps({"error": "resctrl is not mounted\x1b[2J"}).encode()
    agent.answers["/v1/capabilities"] = lambda query: ("503 Service Unavailable", text)
    with pytest.raises(exceptions.AgentFailed, match=r"HTTP 503\): resctrl is not mounted\\x1b\[2J$"):
        AgentClient(socket).capabilities()


@pytest.mark.parametrize(
    "answer",
    [
        ("200 OK", b"<html>hello"),
        ("502 Bad Gateway", b"<html>nginx"),
        ("200 OK", b"[]"),
        ("200 OK", b'{"machines": []}'),
        ("200 OK", b'{"vms": [{"uuid": "x"}]}'),
        ("200 OK", b'{"vms": [7]}'),
        ("200 OK", b"\xff\xfe"),
        ("200 OK", b"[" * 1_000_000),
        ("200 OK", b'{"vms":' * 100_000),
        ("200 OK", b'{"vms": ' + b"[" * 40 + b"]" * 40 + b"}"),
        ("200 OK", b'{"vms": [' + b"9" * 5000 + b"]}"),
        ("503 Service Unavailable", b"[" * 1_000_000),
    ],
)
def test_what_is_no_api_of_ours_is_called_so(agent: FakeAgent, socket: str, answer: tuple[str, bytes]) -> None:
    agent.answers["/v1/vms"] = lambda query: answer
    with pytest.raises(exceptions.NotOurApi, match="not the API of this version"):
        AgentClient(socket).vms()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"uuid": 7}, "got `int`"),
        ({"masks": {"0": 15}}, "masks"),
        ({"state": "cheerful"}, "'cheerful'"),
        ({"caches": None}, "caches"),
    ],
)
def test_a_field_of_another_kind_is_named(agent: FakeAgent, socket: str, change: dict[str, object], told: str) -> None:
    agent.answers["/v1/vms"] = {"vms": [examples.vms()[0] | change]}
    with pytest.raises(exceptions.NotOurApi, match=r"/v1/vms: ") as raised:
        AgentClient(socket).vms()
    assert told in str(raised.value) and "$.vms[0]" in str(raised.value)


def test_an_answer_without_end_is_not_kept(agent: FakeAgent, socket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "LONGEST_ANSWER", 100_000)
    agent.answers["/v1/vms"] = lambda query: ("200 OK", b'{"vms": [], "x": "' + b"x" * 200_000 + b'"}')
    with pytest.raises(exceptions.NotOurApi, match="longer than 100000 bytes"):
        AgentClient(socket).vms()


def _fill_queue(stack: contextlib.ExitStack, socket: str) -> None:
    """Connect until the kernel refuses one more."""
    with contextlib.suppress(BlockingIOError):
        while True:
            one = stack.enter_context(sockets.socket(sockets.AF_UNIX))
            one.setblocking(False)
            one.connect(socket)


def test_a_full_queue_of_connections_is_waited_for(socket: str) -> None:
    body = json.dumps(examples.health()).encode()

    def serve(listening: sockets.socket) -> None:
        time.sleep(0.3)
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    if connection.recv(65536):
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(sockets.socket(sockets.AF_UNIX))
        listening.bind(socket)
        listening.listen(1)
        with contextlib.ExitStack() as others:
            _fill_queue(others, socket)
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            assert AgentClient(socket).health() == examples.health()
        finally:
            listening.shutdown(sockets.SHUT_RDWR)
            thread.join()


def test_a_queue_of_connections_that_stays_full_is_not_waited_for_for_ever(socket: str) -> None:
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(sockets.socket(sockets.AF_UNIX))
        listening.bind(socket)
        listening.listen(1)
        _fill_queue(stack, socket)
        began = time.monotonic()
        with pytest.raises(exceptions.AgentTimeout):
            AgentClient(socket, timeout=0.3).health()
        assert time.monotonic() - began >= 0.2


def test_an_answer_that_comes_a_byte_now_and_then_is_not_waited_for_for_ever(socket: str) -> None:
    with sockets.socket(sockets.AF_UNIX) as listening:
        listening.bind(socket)
        listening.listen()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                for _ in range(100):
                    connection.sendall(b" ")
                    time.sleep(0.1)

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        with pytest.raises(exceptions.AgentTimeout):
            AgentClient(socket, timeout=0.5).health()
        assert time.monotonic() - began < 9, "the whole answer would take ten seconds"
        thread.join()


def test_a_missing_socket_says_how_to_start_the_agent(socket: str) -> None:
    with pytest.raises(exceptions.AgentNotRunning, match=f"{socket}; start it with 'systemctl start vmqos-agent'"):
        AgentClient(socket).health()


def test_a_socket_that_a_dead_agent_left_behind_is_no_running_agent(socket: str) -> None:
    with sockets.socket(sockets.AF_UNIX) as dead:
        dead.bind(socket)
    with pytest.raises(exceptions.AgentNotRunning):
        AgentClient(socket).health()


def test_a_path_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(exceptions.SocketUnusable, match=r"x{110}.*too long"):
        AgentClient(str(tmp_path / ("x" * 110))).health()


def test_a_file_that_is_no_socket_is_not_taken_for_an_agent_that_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "vmqos.conf").touch()
    for path in (tmp_path, tmp_path / "vmqos.conf"):
        with pytest.raises(exceptions.SocketUnusable, match=f"can't use {path} as the socket of .*: it is no socket"):
            AgentClient(str(path)).health()


def test_an_error_says_what_named_the_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    with pytest.raises(exceptions.AgentNotRunning) as raised:
        AgentClient(path, named_by="--socket").vms()
    assert f"no program answers on {path} (from --socket); start it" in str(raised.value)
    with pytest.raises(exceptions.SocketUnusable, match=r"can't use /x{200} \(from VMQOS_SOCKET\) as the socket of"):
        AgentClient("/" + "x" * 200, named_by="VMQOS_SOCKET").vms()


@pytest.mark.parametrize(
    ("directory_mode", "socket_mode", "message"),
    [
        (0o755, 0o040, r": mode 0040, group '.*'; join the group '.*' or use sudo"),
        (0o640, 0o666, r": /.* has mode 0640, group '.*'; join the group '.*' or use sudo"),
    ],
)
def test_a_forbidden_socket_says_which_mode_and_group_forbid_it(
    directory_mode: int, socket_mode: int, message: str
) -> None:
    # Not in tmp_path, whose parents only their owner may enter.
    with tempfile.TemporaryDirectory() as directory, sockets.socket(sockets.AF_UNIX) as listening:
        path = f"{directory}/agent.sock"
        listening.bind(path)
        os.chmod(path, socket_mode)
        os.chmod(directory, directory_mode)
        with somebody(), pytest.raises(exceptions.SocketForbidden, match=message):
            AgentClient(path).health()
        os.chmod(directory, 0o700)


def test_an_agent_that_does_not_answer_is_not_waited_for_for_ever(socket: str) -> None:
    with sockets.socket(sockets.AF_UNIX) as silent:
        silent.bind(socket)
        silent.listen()
        with pytest.raises(exceptions.AgentTimeout, match=r"within 0\.2 seconds"):
            AgentClient(socket, timeout=0.2).health()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"])
@pytest.mark.parametrize("reads", [False, True])
def test_an_agent_that_hangs_up_is_reported(socket: str, said: bytes, reads: bool) -> None:
    with sockets.socket(sockets.AF_UNIX) as rude:
        rude.bind(socket)
        rude.listen()

        def hang_up() -> None:
            connection, _ = rude.accept()
            if reads:
                connection.recv(4096)
            connection.sendall(said)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(exceptions.AgentHungUp, match="ended while it was asked"):
            AgentClient(socket).health()
        thread.join()


@contextlib.contextmanager
def somebody() -> Iterator[None]:
    """A user whom permissions keep out: not root, and an owner only where the test is one."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


class Listening:
    """Answers the questions of some connections with what health is, and counts the connections.

    :ivar many: how many questions of one connection are answered, until it is closed.
    """

    def __init__(self, socket: str, many: int, closes: bool = False) -> None:
        self.many = many
        self.accepted = 0
        self._more = b"Connection: close\r\n" if closes else b""
        self._listening = sockets.socket(sockets.AF_UNIX)
        self._listening.bind(socket)
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Listening:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._listening.shutdown(sockets.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        body = json.dumps(examples.health()).encode()
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.accepted += 1
                with connection:
                    connection.settimeout(5)
                    for _ in range(self.many):
                        if not connection.recv(65536):
                            break
                        head = b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n" % (self._more, len(body))
                        connection.sendall(head + body)


@pytest.mark.parametrize(
    ("keeps", "many", "closes", "accepted"),
    [(False, 9, False, 4), (True, 9, False, 1), (True, 2, False, 2), (True, 1, False, 4), (True, 1, True, 4)],
)
def test_a_connection_is_kept_as_long_as_the_agent_keeps_it(
    socket: str, keeps: bool, many: int, closes: bool, accepted: int
) -> None:
    with Listening(socket, many, closes) as listening:
        client = AgentClient(socket, keeps_connections=keeps)
        for _ in range(4):
            assert client.health() == examples.health()
        assert listening.accepted == accepted
        for kept in client._kept:
            kept.close()


def test_what_changes_something_has_a_connection_of_its_own(agent: FakeAgent, socket: str) -> None:
    client = AgentClient(socket, keeps_connections=True)
    client.health()
    (kept,) = client._kept
    agent.answers[f"/v1/flavors/{examples.WEB}"] = {"uuid": examples.WEB}
    client.tell_flavor({"uuid": examples.WEB, "process": "1", "flavor": "gold", "project": "p"}, {})  # type: ignore[typeddict-item, typeddict-unknown-key]
    assert client._kept[0] is kept
    for one in client._kept:
        one.close()


def test_as_many_connections_are_kept_as_the_client_is_to_keep(agent: FakeAgent, socket: str) -> None:
    client = AgentClient(socket, keeps_connections=True)
    together = threading.Barrier(clients.MOST_KEPT + 3)

    def ask() -> None:
        together.wait()
        client.vms()

    threads = [threading.Thread(target=ask) for _ in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(client._kept) <= clients.MOST_KEPT
    for one in client._kept:
        one.close()


@pytest.mark.parametrize("said", [b"hello\r\n\r\n", b"HTTP/1.1 ok\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200])
def test_what_is_no_http_is_no_api_of_ours(socket: str, said: bytes) -> None:
    with sockets.socket(sockets.AF_UNIX) as listening:
        listening.bind(socket)
        listening.listen()

        def speak() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(4096)
                connection.sendall(said)
                connection.recv(4096)

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(exceptions.NotOurApi):
            AgentClient(socket).health()
        thread.join()


def test_any_text_of_a_user_can_be_asked_for(agent: FakeAgent, socket: str) -> None:
    for name in ("web 1", "a/b?c=d#e", "\u00fc%41", "\udcff", "x\r\ny"):
        with pytest.raises(exceptions.AgentRefused, match="there is no"):
            AgentClient(socket).vm(name)
