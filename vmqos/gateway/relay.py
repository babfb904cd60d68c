# SPDX-License-Identifier: Apache-2.0
"""What the gateway answers beside the page: the metrics, and the agent's API."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vmqos.daemon.bounded_server import StartResponse
from vmqos.gateway import agent_away
from vmqos.gateway.health import OpenStackHealth, health
from vmqos.gateway.metrics.text import Metrics
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import LocalApiError

METRICS = "/metrics"

_JSON = "application/json"

_RELAYED = re.compile(r"/v1/(?!(?:openstack|flavors)(?:/|$))[a-z]+(?:/[0-9A-Za-z-]+)*")
"""The paths that the agent is asked for: none with a dot or a character that a URL has to quote, so that none means
another one by the time the agent reads it. The agent has two resources for the gateway itself: these are no client's.
"""

LONGEST_QUESTION = 10_000
"""Characters of the path and the query that the agent is asked: they are quoted anew, which can make them some times as
long, and the agent takes 32 KiB of headers."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    content: bytes
    media_type: str = _JSON


class Relay:
    """The WSGI application.

    :param agent: the agent to ask.
    :param openstack: what is known of OpenStack's services.
    :param metrics: the text of ``/metrics``.
    """

    def __init__(self, agent: AgentClient, openstack: OpenStackHealth, metrics: Metrics) -> None:
        self._agent = agent
        self._openstack = openstack
        self._metrics = metrics

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """WSGI (PEP 3333)."""
        try:
            answer = self._answer(environ)
        except LocalApiError as error:
            answer = _json(503, {"error": agent_away.explain(error), "agent_answers": False})
        phrase = http.client.responses.get(answer.status, "Unknown")
        headers = [
            ("Content-Type", answer.media_type),
            ("Content-Length", str(len(answer.content))),
            # Every answer is of its moment, and a proxy in front may keep one that does not say so.
            ("Cache-Control", "no-store"),
        ]
        if answer.status == http.HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        start_response(f"{answer.status} {phrase}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.content]

    def _answer(self, environ: Mapping[str, Any]) -> _Answer:
        path = environ.get("PATH_INFO", "").rstrip("/")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _json(405, {"error": "the gateway only answers GET: no client can change anything"})
        if path == METRICS:
            media_type, text = self._metrics.answer(environ.get("HTTP_ACCEPT", ""))
            return _Answer(200, text, media_type)
        if path == contract.HEALTH:
            if wrong := contract.unknown_parameter(environ.get("QUERY_STRING", ""), ()):
                return _json(400, {"error": wrong})
            return _json(200, health(self._agent, self._openstack))
        if _RELAYED.fullmatch(path):
            query = environ.get("QUERY_STRING", "")
            if len(path) + len(query) > LONGEST_QUESTION:
                return _json(414, {"error": f"the path and the query have more than {LONGEST_QUESTION} characters"})
            return _Answer(*self._agent.relay(path, query))
        known = f"/, {METRICS}, and the agent's API below /v1/"
        return _json(404, {"error": f"there is no {path[:80] or '/'} here, but {known}"})


def _json(status: int, value: object) -> _Answer:
    return _Answer(status, json.dumps(value).encode())
