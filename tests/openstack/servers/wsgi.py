# SPDX-License-Identifier: Apache-2.0
"""A WSGI application of OpenStack as a process, where its own packages would want uWSGI or Apache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.openstack.servers.process import Server, answers, script
from tools.lab.workspace import Workspace

SERVE = """\
import importlib
import sys
import waitress
listen, threads, module = sys.argv[1:4]
sys.argv[1:4] = []
application = importlib.import_module(module).application
waitress.serve(application, listen=listen, threads=int(threads), connection_limit=2000, backlog=2000)
"""


def serve(
    workspace: Workspace,
    directory: Path,
    module: str,
    port: int,
    environment: Mapping[str, str],
    arguments: Sequence[str] = (),
    threads: int = 2,
) -> Server:
    """Start the application of that module on a port of loopback, and wait until it answers.

    :param arguments: of the command line that the application thinks it has.
    """
    command: list[str | Path] = [script("python"), "-c", SERVE]
    command += [f"127.0.0.1:{port}", str(threads), module, *arguments]
    server = Server(workspace, directory, command, environment)
    server.wait_until(partial(answers, port), f"{module} answering")
    return server
