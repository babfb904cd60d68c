# SPDX-License-Identifier: Apache-2.0
"""Where the agent's socket is, and what the configuration says."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from vmqos.local_api.client import AgentClient

if TYPE_CHECKING:
    from oslo_config import cfg

SOCKET_VARIABLE = "VMQOS_SOCKET"


def configuration(options: argparse.Namespace) -> cfg.ConfigOpts:
    """The agent's configuration: of ``--config-file``, else where oslo.config finds ``vmqos.conf`` (/etc/vmqos).

    :raises vmqos.conf.exceptions.ConfigurationError: if a file can't be read or a value is not allowed.
    """
    # Imported here, because most commands need only the socket's path and oslo.config is slow to load.
    from vmqos.conf import loader

    arguments = [f"--config-file={path}" for path in options.config_file]
    return loader.load(arguments)


def socket_path(options: argparse.Namespace) -> str:
    """``--socket``, else the environment's ``VMQOS_SOCKET``, else ``[api] socket`` of the configuration.

    A configuration with credentials is root's alone. Another user, who may talk to the agent, gets the default socket.

    :raises vmqos.conf.exceptions.ConfigurationError: if a file that was named can't be read, or a value is not allowed.
    """
    explicit = options.socket or os.environ.get(SOCKET_VARIABLE)
    if explicit:
        return str(explicit)
    from vmqos.conf import loader
    from vmqos.conf.exceptions import NotReadable

    try:
        return str(configuration(options).api.socket)
    except NotReadable:
        if options.config_file:
            raise
        return str(loader.defaults().api.socket)


def agent(options: argparse.Namespace) -> AgentClient:
    """A client for the agent that the options name."""
    return AgentClient(socket_path(options))
