# SPDX-License-Identifier: Apache-2.0
"""A WSGI application on a port of loopback, in a thread of this process."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


class _Threaded(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


@contextmanager
def served(application: Any) -> Iterator[str]:
    """The URL under which it answers."""
    server = make_server("127.0.0.1", 0, application, server_class=_Threaded, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
