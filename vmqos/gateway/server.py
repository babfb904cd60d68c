# SPDX-License-Identifier: Apache-2.0
"""The TCP port that the gateway answers on."""

from __future__ import annotations

import logging

from vmqos.daemon.bounded_server import Application, BoundedServer
from vmqos.local_api import contract

LOG = logging.getLogger(__name__)


class TcpServer:
    """Serves an application on a TCP port from a thread of its own, between :meth:`start` and :meth:`stop`.

    A port that can't be had is a line in the log and no reason to end: what OpenStack is told matters more.

    :param host: the address.
    :param port: 0: none at all.
    """

    def __init__(self, application: Application, host: str, port: int) -> None:
        self._server: BoundedServer | None = None
        if not port:
            return
        try:
            self._server = BoundedServer(application, "http", at_once=contract.HEALTH, host=host, port=port)
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or error
            LOG.error(
                "no metrics and no page on %s:%d ([http] host, port): %s; the Unix socket has them", host, port, problem
            )

    def start(self) -> None:
        """Answer from now on."""
        if self._server is not None:
            self._server.start()

    def stop(self) -> None:
        """Stop answering, and close the port."""
        if self._server is not None:
            self._server.stop()
