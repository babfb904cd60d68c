# SPDX-License-Identifier: Apache-2.0
"""A VM's promise changes, and a listener of oslo.messaging at a real RabbitMQ hears of it, whatever dies meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.conftest import MakeVm, WaitFor
from tests.openstack.notifications.conftest import HOST, Endpoint
from tests.openstack.servers.ceilometer import Notification
from tests.openstack.servers.rabbitmq import RabbitMq
from tools.lab.agent import Agent
from tools.lab.stalls import Stalls
from tools.lab.unix_http import get
from tools.lab.workspace import CHECKOUT, Workspace

EXCLUSIVE_2 = {"hw:cache_ways": "2"}

DEFINITIONS = CHECKOUT / "etc" / "ceilometer" / "event_definitions.yaml"


def numbers(endpoint: Endpoint, epoch: str) -> list[int]:
    """The numbers of the events of one run of the agent, in the order in which they came first."""
    found = [one.payload["number"] for one in list(endpoint.taken) if one.payload["epoch"] == epoch]
    return list(dict.fromkeys(number for number in found if number))


def all_there(agent: Agent, endpoint: Endpoint) -> bool:
    """Whether every event of this run of the agent came, none before an earlier one."""
    told = agent.get("/v1/events")
    return bool(told["last"]) and numbers(endpoint, told["epoch"]) == list(range(1, told["last"] + 1))


def notifications_of(agent: Agent) -> dict[str, Any]:
    """What the gateway's health says of them."""
    found: dict[str, Any] = agent.gateway.get("/v1/health")["notifications"]
    return found


def test_a_listener_hears_what_becomes_of_a_promise(
    agent: Agent, endpoint: Endpoint, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(EXCLUSIVE_2, display_name="db-1")
    wait_for_vm(vm, "kept")
    wait_for(lambda: any(one.payload["state"] == "kept" for one in endpoint.of(vm.uuid)), "the notification")
    kept = next(one for one in endpoint.of(vm.uuid) if one.payload["state"] == "kept")
    assert (kept.event_type, kept.priority, kept.publisher) == ("vmqos.vm.promise", "info", f"vmqos.{HOST}")
    event = next(one for one in agent.get("/v1/events")["events"] if one["number"] == kept.payload["number"])
    told = {key: event[key] for key in ("uuid", "state", "reason", "reason_code", "number", "name", "flavor")}
    assert {key: kept.payload[key] for key in told} == told
    assert (kept.payload["host"], kept.payload["name"], kept.payload["flavor"]) == (HOST, "db-1", "test")
    assert (kept.payload["project_id"], kept.payload["old_state"]) == (event["project"], event["before"])

    full = make_vm({"hw:cache_ways": "11"})
    wait_for_vm(full, "pending")
    vm.domain.destroy()
    wait_for(lambda: any(one.event_type == "vmqos.vm.ended" for one in endpoint.of(vm.uuid)), "its end")
    pending = next(one for one in endpoint.of(full.uuid) if one.payload["state"] == "pending")
    assert (pending.priority, bool(pending.payload["reason_code"])) == ("error", True)
    wait_for(lambda: all_there(agent, endpoint), "every event, in order")
    assert len({one.message_id for one in endpoint.taken}) == len(endpoint.taken), "each came once"


def test_a_broker_that_is_killed_and_comes_back_costs_no_event(
    agent: Agent,
    broker: RabbitMq,
    endpoint: Endpoint,
    make_vm: MakeVm,
    wait_for: WaitFor,
    wait_for_vm: WaitForVm,
    stalls: Stalls,
) -> None:
    first = make_vm(EXCLUSIVE_2)
    wait_for_vm(first, "kept")
    wait_for(lambda: all_there(agent, endpoint), "the events before")
    wait_for(lambda: notifications_of(agent)["error"] is None, "all being well at first")
    broker.kill()
    try:
        second = make_vm(EXCLUSIVE_2)
        wait_for_vm(second, "kept")
        first.domain.destroy()
        health: dict[str, Any] = {}

        def wait_there() -> bool:
            # They wait from the moment on in which they are known, and the first try fails after that.
            health.update(notifications_of(agent))
            return bool(health["waiting"] >= 2 and health["error"] and health["failures"])

        wait_for(wait_there, "the events waiting, and the reason")
        assert health["where"].startswith("rabbit://127.0.0.1:")
        assert "guest" not in json.dumps(health)
        found = subprocess.run(
            [sys.executable, "-m", "vmqos.cli.main", "--config-file", str(agent.config_file), "doctor", "-f", "json"],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
        )
        assert "to be sent" in found.stdout, found
        # It serves all else, and ends at once; the next one goes on where this one was.
        assert get(agent.gateway.socket, f"/v1/vms/{second.uuid}")["state"] == "kept"
        began = time.monotonic()
        assert agent.gateway.stop() == 0
        assert stalls.took(began) < 3
        agent.gateway.start()
    finally:
        broker.start()
        broker.url()
    wait_for(lambda: all_there(agent, endpoint), "every event, in order, when the broker is back", 60)
    repeated = len(endpoint.taken) - len({one.message_id for one in endpoint.taken})
    print(f"{repeated} of {len(endpoint.taken)} came again")
    assert repeated <= 1, "only the one that was not confirmed when the broker died"
    wait_for(lambda: notifications_of(agent)["waiting"] == 0 and not notifications_of(agent)["error"], "all being well")


def test_a_gateway_that_is_killed_repeats_one_event_at_most(
    agent: Agent, endpoint: Endpoint, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    wait_for_vm(make_vm(EXCLUSIVE_2), "kept")
    wait_for(lambda: all_there(agent, endpoint), "the events before")
    agent.gateway.kill()
    wait_for_vm(make_vm(EXCLUSIVE_2), "kept")
    agent.gateway.start()
    wait_for(lambda: all_there(agent, endpoint), "the events after")
    assert len(endpoint.taken) - len({one.message_id for one in endpoint.taken}) <= 1


def test_another_run_of_the_agent_is_told_before_its_events(
    agent: Agent, endpoint: Endpoint, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept")
    wait_for(lambda: all_there(agent, endpoint), "the events before")
    count = len(endpoint.taken)
    agent.kill()
    agent.start()
    wait_for_vm(vm, "kept")
    wait_for(lambda: all_there(agent, endpoint), "the events of the next run")
    restarted = endpoint.taken[count]
    assert (restarted.event_type, restarted.payload["reason_code"]) == ("vmqos.host.events_lost", "agent-restarted")
    assert (restarted.priority, restarted.payload["lost"]) == ("info", 0)
    assert [one.event_type for one in endpoint.taken].count("vmqos.host.events_lost") == 1


@pytest.fixture
def ceilometer(broker: RabbitMq, workspace: Workspace) -> Iterator[Path]:
    """Where Ceilometer publishes the events that it makes of notifications, one a line."""
    path = workspace.path / "events.json"
    path.touch()
    bus = {"DEFAULT": {"transport_url": broker.url()}, "oslo_messaging_rabbit": {"amqp_durable_queues": True}}
    started = Notification(workspace, bus, [f"file://{path}?json"], DEFINITIONS)
    yield path
    started.stop()
    print(f"--- {started.said[-4000:]}")


def test_ceilometer_makes_events_with_our_traits_and_needs_no_exchange_of_ours(
    agent: Agent, ceilometer: Path, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(EXCLUSIVE_2, display_name="db-2")
    wait_for_vm(vm, "kept")
    full = make_vm({"hw:cache_ways": "11"})
    wait_for_vm(full, "pending")

    def traits(uuid: str, state: str) -> dict[str, Any]:
        # Ceilometer may be writing the last line.
        *lines, _ = ceilometer.read_text().split("\n")
        for line in lines:
            event = json.loads(line)
            found = {trait["name"]: trait["value"] for trait in event["traits"]}
            if (found.get("resource_id"), found.get("state")) == (uuid, state):
                return {"event_type": event["event_type"], **found}
        return {}

    wait_for(lambda: bool(traits(vm.uuid, "kept") and traits(full.uuid, "pending")), "Ceilometer's events", 90)
    found = traits(vm.uuid, "kept")
    assert (found["event_type"], found["host"], found["display_name"]) == ("vmqos.vm.promise", HOST, "db-2")
    assert found["flavor"] == "test" and found["number"] > 0
    assert traits(full.uuid, "pending")["reason_code"]
