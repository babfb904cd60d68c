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


def readable_configuration(options: argparse.Namespace) -> cfg.ConfigOpts:
    """The agent's configuration, or the defaults where this user may not read it and has named no file.

    A configuration with credentials is root's alone, and other users may talk to the agent.

    :raises vmqos.conf.exceptions.ConfigurationError: if a file that was named can't be read, or a value is not allowed.
    """
    from vmqos.conf import loader
    from vmqos.conf.exceptions import NotReadable

    try:
        return configuration(options)
    except NotReadable:
        if options.config_file:
            raise
        return loader.defaults()


def named_socket(options: argparse.Namespace) -> tuple[str, str]:
    """``--socket``, else the environment's ``VMQOS_SOCKET``, else ``[api] socket`` of the configuration.

    :returns: the path, and what names it; nothing for the default.
    :raises vmqos.conf.exceptions.ConfigurationError: if a file that was named can't be read, or a value is not allowed.
    """
    if options.socket:
        return str(options.socket), "--socket"
    if in_environment := os.environ.get(SOCKET_VARIABLE):
        return in_environment, SOCKET_VARIABLE
    conf = readable_configuration(options)
    place = conf.get_location("socket", "api")
    named_by = f"[api] socket in {place.detail}" if place and place.location.is_user_controlled else ""
    return str(conf.api.socket), named_by


def agent(options: argparse.Namespace) -> AgentClient:
    """A client for the agent that the options name."""
    path, named_by = named_socket(options)
    return AgentClient(path, named_by=named_by)
