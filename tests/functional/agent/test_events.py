# SPDX-License-Identifier: Apache-2.0
"""What changed is told with a number, to those who ask and to those who wait: real VMs on the simulator."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

from tests.functional.agent.conftest import WaitForVm
from tests.functional.conftest import MakeVm, WaitFor
from tools.lab import unix_http
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from tools.lab.stalls import Stalls
from tools.lab.workspace import CHECKOUT

EXCLUSIVE_2 = {"hw:cache_ways": "2"}


def story(agent: Agent, uuid: str) -> list[tuple[str, str]]:
    """The kinds and states of a VM's events."""
    return [(one["kind"], one["state"]) for one in agent.get("/v1/events")["events"] if one["uuid"] == uuid]


def test_what_becomes_of_a_promise_and_of_the_host_is_told_in_order(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(EXCLUSIVE_2, display_name="db-1")
    wait_for_vm(vm, "kept")
    wait_for(lambda: story(agent, vm.uuid)[-1:] == [("promise", "kept")], "the event")
    subprocess.run(["umount", "-l", str(simulator.root)], check=True)
    wait_for_vm(vm, "pending")
    wait_for(lambda: simulator.pid is None, "the agent letting go of its files")
    simulator.stop()
    simulator.start()
    wait_for_vm(vm, "kept")
    vm.domain.destroy()
    wait_for(lambda: story(agent, vm.uuid)[-1] == ("ended", ""), "its end")

    told = agent.get("/v1/events")
    assert [event["number"] for event in told["events"]] == list(range(1, told["last"] + 1))
    assert [event["time"] for event in told["events"]] == sorted(event["time"] for event in told["events"])
    states = [state for kind, state in story(agent, vm.uuid) if kind == "promise"]
    assert "pending" in states and states[-1] == "kept"
    lost = [one for one in told["events"] if one["uuid"] == vm.uuid and one["state"] == "pending"][-1]
    host = [one["state"] for one in told["events"] if one["name"] == "resctrl"]
    assert host == ["fails", "works"]
    assert lost["name"] == "db-1" and lost["reason_code"]


def test_a_client_of_the_agent_or_the_gateway_waits_for_the_next_event(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    wait_for_vm(make_vm(), "none")
    begun = agent.get("/v1/events")
    found: dict[str, Any] = {}

    def wait(name: str, ask: Any) -> None:
        # One answer has the events of one pass: each client goes on until the VM has what it was promised.
        last = begun["last"]
        while time.monotonic() < deadline:
            told = ask(f"/v1/events?after={last}&epoch={begun['epoch']}&wait=5")
            last = told["last"]
            if any(event["state"] == "kept" for event in told["events"]):
                found[name] = next(event for event in told["events"] if event["state"] == "kept")
                return

    deadline = time.monotonic() + 60
    gateway = agent.metrics
    asks = {"agent": agent.get, "gateway": lambda path: unix_http.get(gateway, path)}
    clients = [threading.Thread(target=wait, args=item) for item in asks.items()]
    follower = subprocess.Popen(
        [sys.executable, "-m", "vmqos.cli.main", "--socket", str(agent.socket), "events", "--follow", "-f", "json"],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for client in clients:
            client.start()
        vm = make_vm(EXCLUSIVE_2)
        for client in clients:
            client.join(70)
        assert {event["uuid"] for event in found.values()} == {vm.uuid} and found.keys() == asks.keys()
        assert found["agent"] == found["gateway"]
        assert follower.stdout is not None
        followed = next(
            event for event in map(json.loads, follower.stdout) if (event["uuid"], event["state"]) == (vm.uuid, "kept")
        )
        assert followed == found["agent"]
    finally:
        follower.kill()
        follower.wait()
    assert agent.get("/v1/health")["status"] == "ok"


def test_another_run_of_the_agent_has_another_epoch_and_a_client_that_waits_holds_up_no_end(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm, stalls: Stalls
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept")
    before = agent.get("/v1/events")
    waiting = threading.Thread(target=lambda: agent.get(f"/v1/events?after={before['last']}&wait=8"))
    waiting.start()
    time.sleep(0.5)
    began = time.monotonic()
    agent.stop()
    assert stalls.took(began) < 5
    waiting.join(60)
    agent.start()
    wait_for(lambda: ("promise", "kept") in story(agent, vm.uuid), "the event of the new run")
    after = agent.get(f"/v1/events?after={before['last'] + 1000}&epoch={before['epoch']}")
    assert after["epoch"] != before["epoch"]
    assert after["events"][0]["number"] == 1
