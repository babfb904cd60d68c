# SPDX-License-Identifier: Apache-2.0
"""A gateway that is another user's process: what it serves, and what its death or its betrayal costs the agent."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from tests.functional.agent.conftest import wait_until_told
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.functional.telemetry.scraped import scrape
from tools.lab.agent import Agent
from tools.lab.gateway import Gateway
from tools.lab.program import Program
from tools.lab.simulator import Simulator
from tools.lab.workspace import CHECKOUT, Workspace

NOBODY = 65534
STRANGER = 65533
"""User IDs without any right."""

EXCLUSIVE_2 = {"hw:cache_ways": "2"}

ASK_AS_ANOTHER = """
import json, os, sys
uid, path, requests = json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
import http.client, socket
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
statuses = []
for method, target, body in requests:
    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.connect(path)
        try:
            connection.request(method, target, body)
        except BrokenPipeError:
            # What is too long is refused before all of it was sent; the answer is there.
            pass
        statuses.append(connection.getresponse().status)
    except PermissionError:
        statuses.append("forbidden")
    except (OSError, http.client.HTTPException):
        statuses.append("cut off")
print(json.dumps(statuses))
"""
"""Ask over a Unix socket as another user; the statuses."""


def launch_as_nobody(module: str, arguments: Sequence[str], log: Path) -> Program:
    """Start a program as a user without rights, but for one: it may read Python and this tree, wherever these are.

    That capability (``CAP_DAC_READ_SEARCH``) opens no socket and writes no file.
    """
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    may_read = [f"--{kind}=-all,+dac_read_search" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
    command = [*as_nobody, *may_read, "--no-new-privs", sys.executable, "-m", module, *arguments]
    with log.open("ab") as output:
        return subprocess.Popen(
            command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def asked_as(uid: int, path: Path, *requests: tuple[str, str, str | None]) -> list[object]:
    """The HTTP status of each request (method, target, body), or what kept it from being answered."""
    command = [sys.executable, "-c", ASK_AS_ANOTHER, str(uid), str(path), json.dumps(requests)]
    found: list[object] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


@pytest.fixture
def agent(make_agent: MakeAgent, workspace: Workspace, free_port: int) -> Iterator[Agent]:
    """A running agent whose gateway is to run as ``nobody``."""
    workspace.path.chmod(0o711)
    made = make_agent({"gateway": {"user": "nobody"}, "http": {"port": free_port}})
    folder = Path(tempfile.mkdtemp(dir=workspace.path))
    os.chown(folder, NOBODY, NOBODY)
    made.gateway = Gateway(
        workspace,
        config_file=made.config_file,
        socket=folder / "gateway.sock",
        name="gateway-of-nobody",
        launch=launch_as_nobody,
    )
    made.configure({"gateway": {"socket": made.gateway.socket}})
    made.start()
    yield made


def listening(pid: int) -> list[str]:
    """The lines of ``ss`` about the Internet sockets of a process."""
    told = subprocess.run(["ss", "-Hanptuw"], capture_output=True, text=True, check=True).stdout
    return [line for line in told.splitlines() if f"pid={pid}," in line]


def test_another_user_s_process_serves_everything_and_root_s_has_no_internet_socket(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, free_port: int
) -> None:
    assert agent.pid is not None and agent.gateway.pid is not None
    assert os.stat(f"/proc/{agent.gateway.pid}").st_uid == NOBODY
    vm = make_vm(EXCLUSIVE_2)
    wait_until_told(agent, wait_for, vm, "kept")
    assert scrape(free_port).value("vmqos_vm_state", uuid=vm.uuid, state="kept") == 1
    with httpx.Client(base_url=f"http://127.0.0.1:{free_port}", timeout=60.0, trust_env=False) as client:
        assert client.get("/").headers["content-type"].startswith("text/html")
        assert client.get(f"/v1/vms/{vm.uuid}").json()["state"] == "kept"
        assert client.get("/v1/health").json()["placement"] is None
        assert client.get("/v1/openstack").status_code == 404
        assert client.put(f"/v1/flavors/{vm.uuid}?spec=hw:cache_ways=9").status_code == 405
    assert listening(agent.pid) == []
    assert any(f"127.0.0.1:{free_port}" in line for line in listening(agent.gateway.pid))


def test_the_process_figures_are_the_agent_s_and_the_gateway_s_own_have_a_name_of_their_own(
    agent: Agent, free_port: int
) -> None:
    found = scrape(free_port)

    def started(pid: int) -> float:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        return ticks / os.sysconf("SC_CLK_TCK")

    assert agent.pid is not None and agent.gateway.pid is not None
    told = [found.value(f"{prefix}process_start_time_seconds") for prefix in ("", "vmqos_gateway_")]
    assert told[1] - told[0] == pytest.approx(started(agent.gateway.pid) - started(agent.pid), abs=0.05)


def test_promises_are_kept_while_the_gateway_is_dead_and_it_comes_back_to_all_of_them(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, free_port: int
) -> None:
    agent.gateway.kill()
    vm = make_vm(EXCLUSIVE_2)
    wait_until_told(agent, wait_for, vm, "kept")
    with pytest.raises(OSError):
        scrape(free_port)
    agent.gateway.start()
    assert scrape(free_port).value("vmqos_vm_state", uuid=vm.uuid, state="kept") == 1


def test_a_gateway_without_an_agent_says_so_and_finds_the_next_one(
    agent: Agent, wait_for: WaitFor, free_port: int
) -> None:
    agent.kill()
    with httpx.Client(base_url=f"http://127.0.0.1:{free_port}", timeout=60.0, trust_env=False) as client:
        for path in ("/v1/health", "/v1/vms"):
            answer = client.get(path)
            assert answer.status_code == 503 and "vmqos-agent does not run" in answer.json()["error"]
        assert scrape(free_port).value("vmqos_agent_up") == 0
        assert client.get("/").status_code == 200
        wait_for(lambda: "the agent is away" in agent.gateway.log.read_text(), "the log saying so")
        agent.start()
        # One text serves all who scrape within a second, so the first one may be of the second before.
        wait_for(lambda: scrape(free_port).value("vmqos_agent_up") == 1, "the metrics saying so, too")
        wait_for(lambda: "the agent answers again" in agent.gateway.log.read_text(), "the log saying so")


def test_a_flooded_gateway_keeps_no_vm_waiting(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, free_port: int
) -> None:
    wait_until_told(agent, wait_for, make_vm(EXCLUSIVE_2), "kept")
    ends, tries = threading.Event(), itertools.count()

    def flood() -> None:
        while not ends.is_set():
            next(tries)
            try:
                with socket.create_connection(("127.0.0.1", free_port), timeout=1) as client:
                    client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    client.recv(100)
            except OSError:
                continue

    threads = [threading.Thread(target=flood) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        vm = make_vm(EXCLUSIVE_2)
        flooded = next(tries)
        wait_until_told(agent, wait_for, vm, "kept")
        # The flood goes on all the time, however long that takes a machine that is busy with it: the VM did not wait
        # for its end.
        wait_for(lambda: next(tries) > flooded + 20, "the flood going on")
        assert agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept"
        wait_for(lambda: agent.get("/v1/health")["status"] == "ok", "all being well while the flood goes on")
    finally:
        ends.set()
        for thread in threads:
            thread.join()


def test_a_gateway_that_was_taken_over_changes_no_group(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, simulator: Simulator
) -> None:
    vm, other = make_vm(EXCLUSIVE_2), make_vm({})
    wait_until_told(agent, wait_for, vm, "kept")
    wait_until_told(agent, wait_for, other, "none")

    def groups() -> dict[str, str]:
        return {path.parent.name: path.read_text() for path in sorted(simulator.root.glob("*/schemata"))}

    before, path = groups(), agent.socket.with_name("gateway.sock")
    process = f"{vm.pid}-{Path(f'/proc/{vm.pid}/stat').read_text().rpartition(')')[2].split()[19]}"
    told = asked_as(
        NOBODY,
        path,
        ("GET", "/v1/openstack", None),
        ("PUT", f"/v1/flavors/{vm.uuid}?process={process}&spec=hw:cache_ways=9", None),
        ("PUT", f"/v1/flavors/{other.uuid}?process={process}&spec=hw:cache_ways=9", None),
        ("PUT", f"/v1/flavors/{vm.uuid}?process={process}&error={'x' * 20_000}", None),
        ("PUT", f"/v1/flavors/../../../{vm.uuid}?spec=hw:cache_ways=9", None),
        ("PUT", f"/v1/flavors/{vm.uuid}?process={process}", "a body"),
        ("PUT", "/v1/vms", None),
        ("DELETE", f"/v1/vms/{vm.uuid}", None),
        ("POST", "/v1/plan?spec=hw:cache_ways=9", None),
        ("GET", "/v1/health", None),
    )
    assert told == [200, 404, 404, 404, 404, 413, 405, 405, 405, 200]
    passes = agent.get("/v1/health")["passes"]
    wait_for(lambda: agent.get("/v1/health")["passes"] > passes + 1, "two more passes")
    assert groups() == before
    assert wait_until_told(agent, wait_for, vm, "kept")["ways_requested"] == 2


def test_no_other_user_gets_to_the_gateway_s_socket(agent: Agent, make_vm: MakeVm) -> None:
    path = agent.socket.with_name("gateway.sock")
    assert asked_as(STRANGER, path, ("GET", "/v1/openstack", None)) == ["forbidden"]
