# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.unit.gateway.answers import HEALTH, NOTIFICATIONS, NOVA, PLACEMENT, over_the_socket
from vmqos.daemon.unix_server import UnixServer
from vmqos.gateway.metrics.text import Metrics
from vmqos.gateway.relay import Relay
from vmqos.local_api.client import AgentClient


@dataclass
class Agent:
    """A WSGI application in the agent's place.

    :ivar asked: what it was asked for: method, path and query.
    :ivar status: of every answer but that about its health.
    """

    asked: list[tuple[str, str, dict[str, list[str]]]] = field(default_factory=list)
    status: str = "200 OK"

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path, query = environ["PATH_INFO"], parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
        self.asked.append((environ["REQUEST_METHOD"], path, query))
        is_health = path == "/v1/health"
        start_response("200 OK" if is_health else self.status, [("Content-Type", "application/json")])
        return [json.dumps(HEALTH if is_health else {"path": path}).encode()]


NOT_KEPT = {"Cache-Control": "no-store"}


@pytest.fixture
def socket(tmp_path: Path) -> str:
    return str(tmp_path / "agent.sock")


@pytest.fixture
def agent(socket: str) -> Iterator[Agent]:
    """An agent that answers on the socket."""
    found = Agent()
    server = UnixServer(found, "[gateway] agent_socket", socket, mode="600", at_once="/v1/health")
    server.start()
    yield found
    server.stop()


def ask(socket: str, path: str, method: str = "GET", query: str = "") -> tuple[str, dict[str, str], bytes]:
    """What the gateway answers whose agent is on that socket."""
    openstack = SimpleNamespace(placement=lambda: PLACEMENT, nova=lambda: NOVA, notifications=lambda: NOTIFICATIONS)
    metrics = SimpleNamespace(answer=lambda accept: (f"text/plain; of={accept}", b"a_metric 1\n"))
    relay = Relay(AgentClient(socket), openstack, metrics)  # type: ignore[arg-type]
    answered: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]]) -> None:
        answered.extend((status, dict(headers)))

    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, "HTTP_ACCEPT": "all"}
    body = b"".join(relay(environ, start_response))
    return answered[0], answered[1], body


def error_of(body: bytes) -> str:
    return str(json.loads(body)["error"])


@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
def test_the_metrics_are_answered_in_the_format_that_the_client_asks_for(path: str, socket: str) -> None:
    status, headers, body = ask(socket, path)
    assert (status, headers["Content-Type"], body) == ("200 OK", "text/plain; of=all", b"a_metric 1\n")
    assert ask(socket, path, "HEAD") == (status, headers, b"")


def test_what_scrapes_the_metrics_may_add_parameters_of_its_own(socket: str) -> None:
    assert ask(socket, "/metrics", query="collect%5B%5D=vm&target=compute") == ask(socket, "/metrics")


def test_how_the_gateway_fares_is_asked_for_without_a_parameter(agent: Agent, socket: str) -> None:
    status, _, body = ask(socket, "/v1/health", query="verbose")
    assert status == "400 Bad Request" and not agent.asked
    assert error_of(body) == "there is no parameter 'verbose' here, but none at all"


@pytest.mark.parametrize(
    ("path", "query", "asked"),
    [
        ("/v1/vms", "", {}),
        ("/v1/vms/", "", {}),
        ("/v1/events", "after=3&wait=5", {"after": ["3"], "wait": ["5"]}),
        ("/v1/telemetry/history", "seconds=600&vm=a&vm=b", {"seconds": ["600"], "vm": ["a", "b"]}),
        ("/v1/plan", "spec=hw:cache_ways%3D2&spec=a%3D", {"spec": ["hw:cache_ways=2", "a="]}),
        ("/v1/plan", "spec=%26spec%3D1%23%0A&empty=", {"spec": ["&spec=1#\n"], "empty": [""]}),
        ("/v1/vms/11111111-1111-4111-8111-111111111111", "", {}),
        ("/v1/openstacks", "", {}),
        ("/v1/sizes", "", {}),
        ("/v1/nothing/OF/this-kind", "", {}),
    ],
)
def test_the_agent_is_asked_for_its_api(
    path: str, query: str, asked: dict[str, list[str]], agent: Agent, socket: str
) -> None:
    status, headers, body = ask(socket, path, query=query)
    path = path.rstrip("/")
    assert (status, json.loads(body)) == ("200 OK", {"path": path})
    assert headers == {"Content-Type": "application/json", "Content-Length": str(len(body)), **NOT_KEPT}
    assert agent.asked == [("GET", path, asked)]
    assert ask(socket, path, "HEAD", query) == (status, headers, b"")


@pytest.mark.parametrize("status", ["404 Not Found", "400 Bad Request", "503 Service Unavailable"])
def test_an_answer_of_the_agent_is_handed_on_whatever_it_says(status: str, agent: Agent, socket: str) -> None:
    agent.status = status
    assert ask(socket, "/v1/vms") == (
        status,
        {"Content-Type": "application/json", "Content-Length": "19", **NOT_KEPT},
        b'{"path": "/v1/vms"}',
    )


@pytest.mark.parametrize(
    "path",
    [
        "/v1/openstack",
        "/v1/openstack/",
        "/v1/openstack//",
        "/v1/openstack/more",
        "/v1/flavors",
        "/v1/flavors/11111111-1111-4111-8111-111111111111",
        "/v1//openstack",
        "//v1/openstack",
        "/v1/./openstack",
        "/v1/vms/../openstack",
        "/v1/vms/%2e%2e/openstack",
        "/v1/openstack\n",
        "/v1/vms\n/../openstack",
        "/v1/vms?/../openstack",
        "/v1/vms#",
        "/v1/vms\r\nHost: other",
        "/v1/\xff\xfe",
        "/v1/\x00",
        "/v1/" + 70_000 * "x" + ".",
        "/v1",
        "/v1/",
        "/v2/vms",
        "http://elsewhere/v1/vms",
        "*",
        "",
    ],
)
def test_for_nothing_else_the_agent_is_asked(path: str, agent: Agent, socket: str) -> None:
    status, headers, body = ask(socket, path)
    assert (status, headers["Content-Type"]) == ("404 Not Found", "application/json")
    assert error_of(body).startswith("there is no ") and len(body) < 1000
    assert agent.asked == []


@pytest.mark.parametrize(("path", "query"), [("/v1/" + 70_000 * "x", ""), ("/v1/plan", "spec=" + 30_000 * '"')])
def test_a_question_that_is_too_long_is_refused(path: str, query: str, agent: Agent, socket: str) -> None:
    assert ask(socket, path, query=query)[0].startswith("414 ")
    assert agent.asked == []


@pytest.mark.parametrize("filler", ["x", '"', "\xff", "%ff", "&", "="])
def test_the_longest_question_is_answered(filler: str, agent: Agent, socket: str) -> None:
    query = (10_000 * filler)[: 10_000 - len("/v1/plan")]
    assert ask(socket, "/v1/plan", query=query)[0] in ("200 OK", "431 Request Header Fields Too Large")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT"])
@pytest.mark.parametrize("path", ["/metrics", "/v1/vms", "/v1/health", "/v1/flavors/u", "/v1/sizes/u", "/nowhere"])
def test_no_client_can_change_anything(method: str, path: str, agent: Agent, socket: str) -> None:
    status, headers, _ = ask(socket, path, method)
    assert (status, headers["Allow"]) == ("405 Method Not Allowed", "GET, HEAD")
    assert agent.asked == []


@pytest.mark.parametrize("path", ["/v1/health", "/v1/health/"])
def test_the_agents_health_is_told_with_that_of_openstack(path: str, agent: Agent, socket: str) -> None:
    status, headers, body = ask(socket, path)
    assert status == "200 OK"
    of_gateway = {"placement": PLACEMENT, "nova": NOVA, "notifications": NOTIFICATIONS}
    assert json.loads(body) == over_the_socket({**HEALTH, **of_gateway})
    assert ask(socket, path, "HEAD") == (status, headers, b"")


@pytest.mark.parametrize("path", ["/metrics", "/v1/health", "/v1/vms", "/nowhere"])
def test_no_proxy_keeps_an_answer_which_is_of_its_moment(path: str, agent: Agent, socket: str) -> None:
    assert ask(socket, path)[1]["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/v1/health", "/v1/vms", "/v1/nothing"])
def test_without_an_agent_that_is_told_as_what_lasts_a_while(path: str, socket: str) -> None:
    status, headers, body = ask(socket, path)
    assert (status, headers["Content-Type"]) == ("503 Service Unavailable", "application/json")
    text = f"vmqos-agent does not run, or does not answer on {socket} ([gateway] agent_socket)"
    assert json.loads(body) == {"error": text, "agent_answers": False}
    assert ask(socket, path, "HEAD") == (status, headers, b"")


def test_without_an_agent_the_metrics_say_so(socket: str) -> None:
    openstack = SimpleNamespace(placement=lambda: None, nova=lambda: None, notifications=lambda: None)
    agent = AgentClient(socket)
    relay = Relay(agent, openstack, Metrics(agent, openstack))
    told: list[str] = []
    (body,) = relay({"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics"}, lambda status, headers: told.append(status))
    assert told == ["200 OK"]
    assert b"\nvmqos_agent_up 0.0\n" in body
