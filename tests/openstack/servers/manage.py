# SPDX-License-Identifier: Apache-2.0
"""The commands that set a server up, such as ``nova-manage``, with their imports made once for all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.openstack.servers.process import Server, script
from tools.lab.workspace import Workspace

TIMEOUT = 300.0

RUN = """\
import importlib
import json
import os
import sys

module, commands = sys.argv[1:]
main = importlib.import_module(module).main
for arguments in json.loads(commands):
    child = os.fork()
    if not child:
        sys.argv[1:] = arguments
        sys.exit(main())
    if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(f"{module} {arguments} ended with {status}")
"""
"""The imports take seconds, most commands a fraction of one."""


def run(workspace: Workspace, name: str, module: str, configuration: Path, *commands: Sequence[str]) -> None:
    """Run commands one after the other, each in a process of its own.

    :param name: the directory of the log.
    :param module: whose ``main`` the program's script calls, such as ``nova.cmd.manage``.
    :raises RuntimeError: if one fails.
    """
    given = json.dumps([["--config-file", str(configuration), *arguments] for arguments in commands])
    Server(workspace, workspace.path / name, [script("python"), "-c", RUN, module, given]).run(TIMEOUT)
