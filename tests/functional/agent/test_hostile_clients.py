# SPDX-License-Identifier: Apache-2.0
"""Clients that want more of the agent than answers: another account, on the Unix socket and on the port."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.functional.conftest import MakeAgent, Pace
from tools.lab.agent import Agent
from tools.lab.stalls import Stalls

MEBIBYTE = 1 << 20

STRANGER = """
import json, os, socket, sys, time

os.setgroups([])
os.setgid(65534)
os.setuid(65534)
where, what = json.loads(sys.argv[1]), sys.argv[2]

def connect():
    if isinstance(where, str):
        made = socket.socket(socket.AF_UNIX)
        made.connect(where)
    else:
        made = socket.socket()
        made.connect(("127.0.0.1", where))
    return made

if what == "half-open":
    held = [connect() for _ in range(130)]
    for one in held[::2]:
        try:
            one.sendall(b"GET /v1/heal")
        except OSError:
            pass
    print("ready", flush=True)
    time.sleep(600)
elif what == "post":
    made, sent = connect(), 0
    try:
        made.sendall(b"POST /v1/vms HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 104857600\\r\\n\\r\\n")
        while sent < 104857600:
            sent += made.send(b"x" * 65536)
    except OSError:
        pass
    print(sent, flush=True)
elif what == "slow":
    made, began = connect(), time.monotonic()
    made.settimeout(0.2)
    try:
        while time.monotonic() - began < 60:
            made.sendall(b"G" if time.monotonic() - began < 1 else b"x")
            try:
                if made.recv(1) == b"":
                    break
            except TimeoutError:
                pass
    except OSError:
        pass
    print(time.monotonic() - began, flush=True)
"""


@pytest.fixture
def open_agent(make_agent: MakeAgent, workspace_is_open: None, free_port: int) -> Agent:
    """An agent that any account may ask."""
    agent = make_agent({"http": {"port": free_port}, "api": {"socket_mode": "666"}})
    agent.start()
    return agent


@pytest.fixture
def workspace_is_open(workspace: object) -> Iterator[None]:
    """Let other accounts pass through the test's directories to the socket."""
    path = Path(workspace.path)  # type: ignore[attr-defined]
    before = path.stat().st_mode
    path.chmod(before | 0o011)
    yield
    path.chmod(before)


@pytest.fixture(params=["unix", "tcp"])
def where(request: pytest.FixtureRequest, open_agent: Agent, free_port: int) -> Path | int:
    """The agent's Unix socket, or the gateway's port."""
    return open_agent.socket if request.param == "unix" else free_port


@contextlib.contextmanager
def stranger(where: Path | int, what: str) -> Iterator[str]:
    """Have an account without rights do something; the first line that it prints."""
    target = json.dumps(str(where) if isinstance(where, Path) else where)
    with subprocess.Popen([sys.executable, "-c", STRANGER, target, what], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.kill()


def written(pid: int) -> int:
    """Bytes that a process has handed to the kernel to write."""
    found = re.search(r"^wchar: (\d+)$", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def answers(where: Path | int) -> bool:
    """Whether a question is answered there."""
    url = f"http://127.0.0.1:{where}" if isinstance(where, int) else "http://localhost"
    transport = httpx.HTTPTransport(uds=str(where)) if isinstance(where, Path) else None
    with httpx.Client(transport=transport, base_url=url, timeout=60.0, trust_env=False) as client:
        return client.get("/v1/health").json()["status"] != "starting"


def test_a_body_of_100_mebibytes_is_neither_read_nor_written_to_the_disk(open_agent: Agent, where: Path | int) -> None:
    pid = open_agent.pid if isinstance(where, Path) else open_agent.gateway.pid
    assert pid is not None
    before = written(pid)
    with stranger(where, "post") as sent:
        assert int(sent) < 16 * MEBIBYTE, "what the kernel's buffers took"
    assert written(pid) - before < MEBIBYTE
    assert answers(where)


def test_130_half_open_connections_keep_nobody_out(
    open_agent: Agent, where: Path | int, pace: Pace, stalls: Stalls
) -> None:
    with stranger(where, "half-open") as said:
        assert said == "ready\n"
        began = time.monotonic()
        assert answers(where)
        assert open_agent.get("/v1/health")["status"] != "starting"
        # Who had to wait for a place of theirs would wait for ten seconds.
        assert stalls.took(began) < 5 * pace.patience


def test_a_request_that_comes_byte_by_byte_ends_after_some_seconds(
    open_agent: Agent, where: Path | int, stalls: Stalls
) -> None:
    began = time.monotonic()
    with stranger(where, "slow") as seconds:
        assert float(seconds) - stalls.lost(began, time.monotonic()) < 20
