# SPDX-License-Identifier: Apache-2.0
"""A host with an agent and a gateway, a broker that a test may kill, and a listener as consumers have it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg

from tests.functional import conftest as functional
from tests.functional.agent import conftest as of_agent
from tests.functional.conftest import MakeAgent
from tests.openstack.servers.rabbitmq import RabbitMq
from tools.lab.agent import Agent
from tools.lab.workspace import Workspace

workspace = functional.workspace
_session_libvirt = functional._session_libvirt
libvirt_host = functional.libvirt_host
virt_type = functional.virt_type
simulator = functional.simulator
resctrl = functional.resctrl
pace = functional.pace
made_agents = functional.made_agents
make_agent = functional.make_agent
make_vm = functional.make_vm
wait_for = functional.wait_for
stalls = functional.stalls
wait_for_vm = of_agent.wait_for_vm

HOST = "compute-7"

DURABLE = {"amqp_durable_queues": True}
"""What a broker's death must not take with it; the listener and the gateway have to agree on it."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One notification, as a listener gets it."""

    priority: str
    publisher: str
    event_type: str
    payload: dict[str, Any]
    message_id: str


@dataclass
class Endpoint:
    """Notes what comes, of whatever priority.

    :ivar taken: in the order in which it came.
    """

    taken: list[Taken] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def info(self, context: Any, publisher: str, event_type: str, payload: Any, metadata: Any) -> None:
        self._take("info", publisher, event_type, payload, metadata)

    def error(self, context: Any, publisher: str, event_type: str, payload: Any, metadata: Any) -> None:
        self._take("error", publisher, event_type, payload, metadata)

    def _take(self, priority: str, publisher: str, event_type: str, payload: Any, metadata: Any) -> None:
        with self._lock:
            self.taken.append(Taken(priority, publisher, event_type, payload, metadata["message_id"]))

    def of(self, uuid: str) -> list[Taken]:
        """Those of one VM."""
        return [one for one in list(self.taken) if one.payload.get("uuid") == uuid]


@pytest.fixture(scope="session")
def broker(workspace: Workspace) -> Iterator[RabbitMq]:
    """A broker that answers when a test begins."""
    started = RabbitMq(workspace)
    yield started
    started.stop()


@pytest.fixture
def endpoint(broker: RabbitMq) -> Iterator[Endpoint]:
    """Takes what comes on the topic ``notifications``, until the test's end."""
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    transport = oslo_messaging.get_notification_transport(conf, broker.url())
    conf.set_override("amqp_durable_queues", True, "oslo_messaging_rabbit")
    taking = Endpoint()
    target = oslo_messaging.Target(topic="notifications", exchange="vmqos")
    listener = oslo_messaging.get_notification_listener(transport, [target], [taking], executor="threading")
    listener.start()
    yield taking
    listener.stop()
    listener.wait()
    transport.cleanup()


@pytest.fixture
def agent(make_agent: MakeAgent, broker: RabbitMq, workspace: Workspace, request: pytest.FixtureRequest) -> Agent:
    """A running agent whose gateway sends notifications."""
    made = make_agent(
        {
            "notifications": {
                "transport_url": broker.url(),
                "host": HOST,
                "position_file": str(workspace.path / f"{request.node.name[:40]}.json"),
            },
            "oslo_messaging_rabbit": DURABLE,
        }
    )
    made.start()
    return made
