# SPDX-License-Identifier: Apache-2.0
"""The ``[api]`` section: the agent's local, read-only HTTP API."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("api", title="The local API")


OPTIONS = [
    cfg.StrOpt(
        "socket",
        default="$agent.state_path/agent.sock",
        sample_default="/run/vmqos/agent.sock",
        help="The Unix socket that the agent answers on.",
    ),
    cfg.StrOpt(
        "socket_mode",
        regex=r"^0?[0-7]{3}$",
        default="660",
        help="Permissions of the socket in octal. Every process that may write to it may read what the agent knows; "
        "no process can change anything through it.",
    ),
    cfg.StrOpt("socket_group", default=None, help="The group that the socket belongs to; the agent's own if unset."),
    cfg.ListOpt(
        "host_names",
        default=[],
        help="Names under which browsers and other clients may ask for the agent, beside localhost, this host's own "
        "name, and addresses. Other names are refused, for they may be a trick of a web page (DNS rebinding).",
    ),
]
