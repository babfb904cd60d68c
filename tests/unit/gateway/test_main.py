# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.gateway.main, each with a process of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.eventually import eventually
from tests.unit.gateway.answers import HEALTH
from tests.unit.gateway.played_agent import PlayedAgent
from tests.unit.gateway.test_relay import Agent
from tests.unit.local_api.examples import events
from tools.lab.full_pipe import FullPipe
from tools.lab.stalls import Stalls
from vmqos.agent.serve.api import LONGEST_WAIT
from vmqos.daemon.unix_server import UnixServer
from vmqos.gateway import main
from vmqos.local_api.client import TIMEOUT, AgentClient
from vmqos.local_api.exceptions import AgentFailed

PATIENCE = 60.0
"""Seconds until something must have happened that takes one on an idle machine."""


@dataclass
class Gateway:
    """A gateway, and the sockets around it."""

    process: subprocess.Popen[str]
    systemd: socket.socket
    agent_socket: Path
    socket: Path

    def told_systemd(self) -> str:
        """What it tells systemd next."""
        return self.systemd.recv(100).decode()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Have it end; its exit status and what it said."""
        self.process.send_signal(number)
        said = self.process.communicate(timeout=PATIENCE)[0]
        return self.process.returncode, said


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Gateway]]:
    """Starts the gateway, with these lines in its configuration; without an agent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE)
        started: list[Gateway] = []

        def start(
            lines: str = "",
            program: Sequence[str] = ("-m", "vmqos.gateway.main"),
            output: int = subprocess.PIPE,
        ) -> Gateway:
            sockets = tmp_path / "agent.sock", tmp_path / "run" / "gateway.sock"
            text = f"[gateway]\nagent_socket = {sockets[0]}\nsocket = {sockets[1]}\n[http]\nport = 0\n{lines}\n"
            (tmp_path / "vmqos.conf").write_text(text, encoding="utf-8")
            process = subprocess.Popen(
                [sys.executable, *program, "--config-file", str(tmp_path / "vmqos.conf")],
                env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
            started.append(Gateway(process, systemd, *sockets))
            return started[-1]

        yield start
        for gateway in started:
            gateway.process.kill()
            gateway.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_without_an_agent_and_ends_well(start: Callable[[], Gateway], number: signal.Signals) -> None:
    gateway = start()
    assert gateway.told_systemd() == "READY=1"
    with pytest.raises(AgentFailed, match=r"HTTP 503.*vmqos-agent does not run"):
        AgentClient(str(gateway.socket)).health()
    status, said = gateway.end(number)
    assert (status, gateway.told_systemd()) == (0, "STOPPING=1")
    assert said.count("the agent is away: vmqos-agent does not run") == 1
    assert not gateway.socket.exists()


def test_it_goes_on_when_it_was_stopped_for_a_while(start: Callable[..., Gateway]) -> None:
    looks_often = "import sys; from vmqos.gateway import main; main.LOOK_INTERVAL = 0.1; sys.exit(main.main())"
    gateway = start(program=("-c", looks_often))
    assert gateway.told_systemd() == "READY=1"
    for _ in range(3):
        gateway.process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        gateway.process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
    assert not select.select([gateway.systemd], [], [], 0)[0], "it says that it stops"
    with pytest.raises(AgentFailed, match="HTTP 503"):
        AgentClient(str(gateway.socket)).health()
    assert gateway.end()[0] == 0


def test_it_answers_for_an_agent_that_comes_later(start: Callable[[], Gateway]) -> None:
    gateway = start()
    assert gateway.told_systemd() == "READY=1"
    server = UnixServer(Agent(), "[gateway] agent_socket", str(gateway.agent_socket), mode="600", at_once="/v1/health")
    server.start()
    found = AgentClient(str(gateway.socket)).health()
    assert (found["version"], found["placement"], found["nova"]) == (HEALTH["version"], None, None)
    assert AgentClient(str(gateway.socket)).relay("/metrics", "")[0] == 200
    assert gateway.socket.with_suffix(".counters").exists(), "counters go on with the next gateway"
    assert gateway.end()[0] == 0
    server.stop()


def test_an_agent_that_hangs_does_not_keep_it_from_ending(start: Callable[[], Gateway], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "agent.sock"))
        hung.listen()
        gateway = start()
        hung.settimeout(PATIENCE)
        hung.accept()
        with Stalls() as stalls:
            began = time.monotonic()
            assert gateway.end()[0] == 0
            took = stalls.took(began)
    assert took < TIMEOUT, "other questions may wait as long as this"


def test_who_asks_the_gateway_hears_of_an_agent_that_hangs_before_his_own_patience_ends(
    start: Callable[..., Gateway], tmp_path: Path
) -> None:
    assert LONGEST_WAIT < main.AGENT_TIMEOUT < TIMEOUT
    impatient = "import sys; from vmqos.gateway import main; main.AGENT_TIMEOUT = 0.1; sys.exit(main.main())"
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "agent.sock"))
        hung.listen()
        gateway = start(program=("-c", impatient))
        assert gateway.told_systemd() == "READY=1"
        with pytest.raises(AgentFailed, match="did not answer within"):
            AgentClient(str(gateway.socket), program="vmqos-gateway").vms()
        gateway.end()


def test_a_broker_that_accepts_and_says_nothing_does_not_keep_it_from_ending_soon(
    start: Callable[[str], Gateway], tmp_path: Path
) -> None:
    class WithEvents(Agent):
        def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            if environ["PATH_INFO"] != "/v1/events":
                return super().__call__(environ, start_response)
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(events()).encode()]

    with socket.socket() as hung:
        hung.bind(("127.0.0.1", 0))
        hung.listen()
        hung.settimeout(PATIENCE)
        url = f"rabbit://guest:guest@127.0.0.1:{hung.getsockname()[1]}/"
        gateway = start(f"[notifications]\ntransport_url = {url}\nposition_file = {tmp_path / 'position.json'}")
        path = str(gateway.agent_socket)
        server = UnixServer(WithEvents(), "[gateway] agent_socket", path, mode="600", at_once="/v1/health")
        server.start()
        connection, _ = hung.accept()
        assert connection.recv(4) == b"AMQP"
        with Stalls() as stalls:
            began = time.monotonic()
            status, said = gateway.end()
            took = stalls.took(began)
        assert (status, took < 3) == (0, True), (took, said)
        connection.close()
        server.stop()


@pytest.fixture
def full() -> Iterator[FullPipe]:
    made = FullPipe()
    yield made
    made.close()


class HalfAnAgent(Agent):
    """An agent that tells what its host has to give, and fails at everything else but its health."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.status = "500 Internal Server Error"
        if environ["PATH_INFO"] != "/v1/openstack":
            return super().__call__(environ, start_response)
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(PlayedAgent().openstack()).encode()]


def test_it_answers_and_tells_placement_while_nothing_takes_its_log_and_the_lines_come_later(
    start: Callable[..., Gateway], full: FullPipe, tmp_path: Path
) -> None:
    file = tmp_path / "of-nova" / "provider.yaml"
    gateway = start(f"[agent]\nretry_delay_min = 0.1\n[placement]\nprovider_yaml = {file}", output=full.writing)
    full.give_away()
    assert gateway.told_systemd() == "READY=1"
    server = UnixServer(
        HalfAnAgent(), "[gateway] agent_socket", str(gateway.agent_socket), mode="600", at_once="/v1/health"
    )
    server.start()
    client = AgentClient(str(gateway.socket))
    # The thread that answers logs that the agent has no counters, and the one that tells Placement that it could not.
    status, text = client.relay("/metrics", "")
    assert status == 200 and text.count(b"vmqos_agent_answer_missing{") == 5
    eventually(lambda: (client.health()["placement"] or {}).get("failures"))
    file.parent.mkdir()
    eventually(file.exists)
    gateway.process.send_signal(signal.SIGTERM)
    said = list[bytes]()
    reader = threading.Thread(target=lambda: said.append(full.read()))
    reader.start()
    assert gateway.process.wait(PATIENCE) == 0
    reader.join()
    server.stop()
    for words in (b"metrics of the agent's counters are missing", f"{file} can't be told".encode(), b"stopped"):
        assert said[0].count(words) == 1


def test_it_ends_although_nothing_takes_its_log(start: Callable[..., Gateway], full: FullPipe) -> None:
    gateway = start(output=full.writing)
    full.give_away()
    assert gateway.told_systemd() == "READY=1"
    gateway.process.send_signal(signal.SIGTERM)
    assert gateway.process.wait(PATIENCE) == 0
    assert not gateway.socket.exists()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("[placement]\ncheck_interval = often", "[placement] check_interval"),
        (f"[gateway]\nsocket = /run/{'x' * 103}", "the path has 108 bytes, and that of a socket has 107 at most"),
        ("[gateway]\nsocket = /proc/none/gateway.sock", "can't answer on [gateway] socket = /proc/none/gateway.sock"),
        ("[notifications]\ntransport_url = nonsense", "[notifications] transport_url can't be used"),
    ],
)
def test_what_is_wrong_with_the_configuration_is_said(start: Callable[[str], Gateway], lines: str, said: str) -> None:
    gateway = start(lines)
    told = gateway.process.communicate(timeout=PATIENCE)[0]
    assert gateway.process.returncode == 1
    assert told.startswith("vmqos-gateway: ") and said in told
    assert "Traceback" not in told


def test_it_prints_its_own_name() -> None:
    command = [sys.executable, "-m", "vmqos.gateway.main", "--help"]
    assert subprocess.check_output(command, text=True, timeout=PATIENCE).startswith("usage: vmqos-gateway ")
