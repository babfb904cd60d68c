# SPDX-License-Identifier: Apache-2.0
"""A real HTTP server on a Unix socket that answers what an agent would."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import waitress

from tests.unit.local_api import examples
from vmqos.daemon import bounded_server

Answer = tuple[str, bytes]


class FakeAgent:
    """Answers by ``answers``: a path's JSON value, or a function of the query that returns status and body."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "/v1/vms": {"vms": examples.vms()},
            "/v1/caches": {"caches": examples.caches()},
            "/v1/capabilities": examples.capabilities(),
            "/v1/groups": {"groups": [examples.control_group()]},
            "/v1/health": examples.health(),
            "/v1/telemetry": examples.telemetry(),
            "/v1/plan": examples.plan(),
            "/v1/events": examples.events(),
            "/v1/neighbours": examples.neighbours(),
        }
        for vm in examples.vms():
            self.answers[f"/v1/vms/{vm['uuid']}"] = vm | {"task_list": examples.tasks(vm["group"])}
        self.queries: list[dict[str, list[str]]] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
        query = parse_qs(environ.get("QUERY_STRING", ""))
        self.queries.append(query)
        status, body = self._answer(environ["PATH_INFO"], query)
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    def _answer(self, path: str, query: dict[str, list[str]]) -> Answer:
        answer = self.answers.get(path)
        if callable(answer):
            status, body = answer(query)
            return status, body
        if answer is None:
            return "404 Not Found", json.dumps({"error": f"there is no {path} here"}).encode()
        return "200 OK", json.dumps(answer).encode()


@contextlib.contextmanager
def serving(application: Callable[..., Any], path: str) -> Iterator[None]:
    """Serve on the socket while the block runs."""
    # In this process its warnings would reach the standard error of the command that is tried.
    logging.getLogger("waitress").setLevel(logging.ERROR)
    server = waitress.create_server(application, unix_socket=path, threads=2, clear_untrusted_proxy_headers=True)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        # First the workers, which wake the loop when they are done; then the loop closes the server itself. In any
        # other order somebody uses a descriptor that is closed, or by then another's.
        server.task_dispatcher.shutdown()
        bounded_server.in_the_loop(server.trigger, server.close)
        thread.join(10)
