# SPDX-License-Identifier: Apache-2.0
"""``/metrics`` beside the API, and the TCP port on which both are served."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vmqos.agent.loop import Agent
from vmqos.agent.sample.sampler import Telemetry
from vmqos.daemon.bounded_server import Application, BoundedServer, StartResponse

if TYPE_CHECKING:
    from vmqos.gateway.metrics import Metrics

LOG = logging.getLogger(__name__)

PATH = "/metrics"

HEALTH = "/v1/health"
"""Answered however many other requests wait."""


class WithMetrics:
    """The WSGI application that answers ``GET /metrics``, and hands every other question to the one behind it.

    :param agent: the agent to tell about.
    :param telemetry: where the counters come from.
    :param behind: the API.
    """

    def __init__(self, agent: Agent, telemetry: Telemetry, behind: Application) -> None:
        self._agent = agent
        self._telemetry = telemetry
        self._behind = behind
        self._lock = threading.Lock()
        self._made: Metrics | None = None

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """WSGI (PEP 3333)."""
        if environ.get("PATH_INFO", "").rstrip("/") != PATH or environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return self._behind(environ, start_response)
        content_type, content = self._metrics().answer(environ.get("HTTP_ACCEPT", ""))
        start_response("200 OK", [("Content-Type", content_type), ("Content-Length", str(len(content)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [content]

    def _metrics(self) -> Metrics:
        """Made at the first scrape: the library takes a quarter of the agent's memory."""
        with self._lock:
            if self._made is None:
                from vmqos.gateway.metrics import Metrics

                self._made = Metrics(self._agent, self._telemetry)
            return self._made


class TcpServer:
    """Serves an application on a TCP port from a thread of its own, between :meth:`start` and :meth:`stop`.

    A port that can't be had is a line in the log and no reason to end: promises are worth more than graphs.

    :param host: the address.
    :param port: 0: none at all.
    """

    def __init__(self, application: Application, host: str, port: int) -> None:
        self._server: BoundedServer | None = None
        if not port:
            return
        try:
            self._server = BoundedServer(application, "http", at_once=HEALTH, host=host, port=port)
        except (OSError, ValueError) as error:
            LOG.error(
                "no metrics and no page on %s:%d ([http] host, port): %s; the Unix socket has them", host, port, error
            )

    def start(self) -> None:
        """Answer from now on."""
        if self._server is not None:
            self._server.start()

    def stop(self) -> None:
        """Stop answering, and close the port."""
        if self._server is not None:
            self._server.stop()
