# SPDX-License-Identifier: Apache-2.0
"""A WSGI application of OpenStack as a process, where its own packages would want uWSGI or Apache."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tests.openstack.servers.process import Server, answers, script
from tools.lab.workspace import Workspace

SERVE = """\
import importlib
import sys
import waitress
listen, threads, module = sys.argv[1:]
sys.argv[1:] = []
application = importlib.import_module(module).application
waitress.serve(application, listen=listen, threads=int(threads), connection_limit=2000, backlog=2000)
"""


def serve(
    workspace: Workspace,
    directory: Path,
    module: str,
    port: int,
    environment: Mapping[str, str],
    threads: int = 2,
) -> Server:
    """Start the application of that module on a port of loopback, and wait until it answers."""
    command: list[str | Path] = [script("python"), "-c", SERVE, f"127.0.0.1:{port}", str(threads), module]
    server = Server(workspace, directory, command, environment)
    server.wait_until(partial(answers, port), f"{module} answering")
    return server
