# SPDX-License-Identifier: Apache-2.0
"""The TCP port that the gateway answers on."""

from __future__ import annotations

import logging

from vmqos.daemon.bounded_server import Application, BoundedServer
from vmqos.daemon.log_once import LogOnce
from vmqos.daemon.worker import Worker
from vmqos.local_api import contract

LOG = logging.getLogger(__name__)

TRIED_AGAIN = 5.0
"""Seconds after which a port that could not be had is tried again."""

PATIENCE = 1.0
"""Seconds that the end waits for such a try: to find out the address of a name may take long."""


class TcpServer:
    """Serves an application on a TCP port from a thread of its own, between :meth:`start` and :meth:`stop`.

    A port that can't be had is a line in the log and no reason to end: what OpenStack is told matters more. It is tried
    again. When a host boots, its address may come after the gateway.

    :param host: the address.
    :param port: 0: none at all.
    """

    def __init__(self, application: Application, host: str, port: int) -> None:
        self._application = application
        self._host = host
        self._port = port
        self._once = LogOnce(LOG)
        self._worker = Worker("http-port", PATIENCE)
        self._server = self._made() if port else None

    def start(self) -> None:
        """Answer from now on, or from when the port can be had."""
        if self._server is not None:
            self._server.start()
        elif self._port:
            self._worker.start(self._run)

    def stop(self) -> None:
        """Stop answering, and close the port."""
        self._worker.stop()
        if self._server is not None:
            self._server.stop()

    def _run(self) -> None:
        while True:
            with self._worker.condition:
                if self._worker.condition.wait_for(lambda: self._worker.ends, TRIED_AGAIN):
                    return
            server = self._made()
            if server is None:
                continue
            with self._worker.condition:
                if self._worker.ends:
                    server.stop()
                    return
                server.start()
                self._server = server
            LOG.info("metrics and page are on %s:%d now", self._host, self._port)
            return

    def _made(self) -> BoundedServer | None:
        """The server, which has the port; ``None`` where that can't be had."""
        try:
            return BoundedServer(self._application, "http", at_once=contract.HEALTH, host=self._host, port=self._port)
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or error
            told = "no metrics and no page on %s:%d ([http] host, port): %s; the Unix socket has them"
            self._once.log(logging.ERROR, "port", told, self._host, self._port, problem)
            return None
