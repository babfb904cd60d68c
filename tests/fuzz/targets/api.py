# SPDX-License-Identifier: Apache-2.0
"""Requests to the agent and to the gateway, and the agent's answers as its clients read them.

A request goes the way that a connection's does, from waitress's parser with our bounds to the application, without a
socket between: ``tests/campaign/hostile`` has the sockets. The gateway asks an agent by the client that it always
uses, over httpx's own transport for WSGI applications.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
from waitress.adjustments import Adjustments
from waitress.task import WSGITask

from tests.fuzz.targets import parts
from tests.unit.agent.serve.test_api import Counters
from tests.unit.agent.serve.test_health_report import FakeAgent
from tests.unit.agent.serve.test_vms import GROUP
from tests.unit.gateway.answers import NOTIFICATIONS, NOVA, PLACEMENT
from vmqos.agent.observe.told_flavors import ToldFlavors
from vmqos.agent.remember import changes
from vmqos.agent.remember.event_log import EventLog
from vmqos.agent.sample.history import History
from vmqos.agent.sample.minutes import MinuteHistory
from vmqos.agent.serve.api import Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.agent.serve.sizes import Sizes
from vmqos.agent.trial import Trials
from vmqos.daemon import bounded_server
from vmqos.gateway.metrics.text import Metrics
from vmqos.gateway.openstack.notification import Position, due
from vmqos.gateway.page import Site
from vmqos.gateway.relay import Relay
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import LocalApiError

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]

_REFUSALS = frozenset({400, 403, 404, 405, 409, 413, 414, 421, 431, 501, 503})
"""What an application of ours may answer beside 200 and 304; and waitress's parser of a request that is none."""

_UUID = "38c43823-3651-469c-b344-166d1c87d77b"

_FILES = {
    "schemata": b"L3:0=7f0;1=7ff\n",
    "mode": b"shareable\n",
    "tasks": b"1\n",
    "cpus_list": b"0-3\n",
    f"{GROUP}/schemata": b"L3:0=f;1=7ff\n",
    f"{GROUP}/mode": b"shareable\n",
    f"{GROUP}/tasks": b"100\n101\n",
    f"{GROUP}/cpus_list": b"\n",
}


class _Agent(FakeAgent):
    """An agent with one VM that has ways, and one whose flavor is not known."""

    hostname = "node-1"

    def __init__(self) -> None:
        super().__init__()
        self.filesystem = parts.Files(_FILES)  # type: ignore[assignment]
        self.flavors = ToldFlavors(True, lambda uuid: None)
        self.events = EventLog()
        self.events.add(changes.between(changes.Seen(), changes.Seen(self.snapshot.vms, {"libvirt": "gone"})))
        # No input waits for an event.
        self.events.close()
        self.sizes = Sizes(lambda: self.snapshot)

    def forget(self) -> None:
        """Want the flavor again that an input may have told: an input must not depend on the one before it.

        Nor on a trial that it may have begun, or a curve that it may have told.
        """
        self.trials = Trials(lambda: None)
        self.sizes._known = {}
        self.flavors.look_up([])
        self.flavors.look_up([VirtualMachine(_UUID, "instance-2", 8, Process(7, 100), None, False, None)])

    @property
    def conf(self) -> Any:
        return SimpleNamespace(agent=SimpleNamespace(audit_interval=1.0))

    @property
    def resctrl(self) -> Any:
        return SimpleNamespace(sysfs_cpu_path=str(parts.folder() / "cpu"))


class _Counters(Counters):
    """Counters with a past of some seconds."""

    swept_at = 0.0
    is_old = False

    def __init__(self) -> None:
        super().__init__()
        self._history = History(5)
        for moment in range(5):
            self._history.add(time.time() - moment, {"u": (4096.0, 2.0, 1.0, None)})
        self.minutes = MinuteHistory(5)
        for minute in range(3):
            self.minutes.add(time.time() - 60 * (3 - minute), {"u": (4096.0, 2.0, 1.0, None)})

    def past(self, seconds: float, *wanted: frozenset[str] | None) -> Any:
        return self._history.columns(time.time() - seconds, *wanted)


@functools.cache
def _host() -> tuple[_Agent, Application]:
    known, reads = _Agent(), LiveReads()
    reads.start()
    users = {os.geteuid()}
    return known, Api(known, _Counters(), reads, users, triers=users, sizes=known.sizes)  # type: ignore[arg-type]


def _agent() -> Application:
    known, application = _host()
    known.forget()
    return application


class _Client(AgentClient):
    """Asks an application that is in this process."""

    __slots__ = ()

    def _ask(self, method: str, path: str, parameters: tuple[tuple[str, str], ...]) -> tuple[int, bytes]:
        transport = httpx.WSGITransport(app=_agent(), remote_addr=bounded_server.user(os.geteuid()))
        with (
            httpx.Client(transport=transport, base_url="http://vmqos-agent", timeout=self.timeout) as http,
            http.stream(method, path, params=parameters, headers={"Accept-Encoding": "identity"}) as answer,
        ):
            return answer.status_code, answer.read()


@functools.cache
def _gateway() -> Application:
    client = _Client("agent.sock")
    openstack = SimpleNamespace(placement=lambda: PLACEMENT, nova=lambda: NOVA, notifications=lambda: NOTIFICATIONS)
    return Site(Relay(client, openstack, Metrics(client, openstack)))


def agent(data: bytes) -> bool:
    status, body = _request(data, _agent())
    assert not body or isinstance(json.loads(body), dict)
    return status == 200


def gateway(data: bytes) -> bool:
    return _request(data, _gateway())[0] == 200


_SETTINGS = Adjustments(**bounded_server._BOUNDS, unix_socket="unused")


def _request(data: bytes, application: Application) -> tuple[int, bytes]:
    """The status and the body of the answer; the status is 0 where the bytes are no whole request."""
    request = bounded_server._Parser(_SETTINGS)
    while data and not request.completed:
        taken = request.received(data)
        assert taken > 0, "the parser takes none of the bytes that are there"
        data = data[taken:]
    if not request.completed or request.empty:
        return 0, b""
    if request.error:
        status, _, body = request.error.to_response()
        assert _status(status) in _REFUSALS, status
        return _status(status), b""
    server = SimpleNamespace(adj=_SETTINGS, effective_port=80, server_name="localhost")
    channel: Any = SimpleNamespace(
        server=server, addr=(bounded_server.user(os.geteuid()), None), check_client_disconnected=lambda: False
    )
    told: list[str] = []
    environ = WSGITask(channel, request).get_environment()
    body = b"".join(application(environ, lambda status, headers, *rest: told.append(status)))
    assert _status(told[0]) in _REFUSALS | {200, 304}, told[0]
    return _status(told[0]), body


def _status(text: str) -> int:
    return int(text.partition(" ")[0])


@dataclass(frozen=True, slots=True)
class _Answered(AgentClient):
    """An agent whose every answer is in an input: by the last word of the path; the first line is the status."""

    files: Any = None

    def _send(self, method: str, path: str, parameters: tuple[tuple[str, str], ...]) -> tuple[int, bytes]:
        name = path.rpartition("/")[2]
        status, _, body = self.files.get(name, self.files.get("any", b"404\n{}")).partition(b"\n")
        return int(status) if status.isdigit() and len(status) == 3 else 200, body


def answer(data: bytes) -> bool:
    client = _Answered("agent.sock", files={"any": data})
    taken = False
    for question in (
        client.vms,
        lambda: client.vm("u"),
        client.caches,
        client.groups,
        client.capabilities,
        client.health,
        client.telemetry,
        client.hardware_events,
        client.sizes,
        lambda: client.plan(["hw:cache_ways=2"]),
        client.openstack,
        lambda: _notifications(client),
    ):
        try:
            question()
            taken = question != client.capabilities or taken
        except LocalApiError as error:
            assert len(str(error)) < 4 * len(data) + 1000
    return taken


def _notifications(client: AgentClient) -> None:
    """What the gateway would send of the agent's events."""
    # What else due() raises, EventSender takes for an answer of another version.
    with contextlib.suppress(ValueError, OverflowError, OSError):
        for notification, _ in due(client.events(0), Position("e", 1), "node-1", 0.0):
            json.dumps(notification.payload)


def metrics(data: bytes) -> bool:
    client = _Answered("agent.sock", files=parts.split(data))
    openstack = SimpleNamespace(placement=lambda: PLACEMENT, nova=lambda: NOVA, notifications=lambda: NOTIFICATIONS)
    try:
        _, text = Metrics(client, openstack).answer("")
    except LocalApiError:
        return False
    return b"vmqos_agent_info" in text
