# SPDX-License-Identifier: Apache-2.0
"""The ``[http]`` section: metrics, the page and the API for those who speak no Unix socket."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("http", title="Metrics and the page")

OPTIONS = [
    cfg.StrOpt(
        "host",
        default="127.0.0.1",
        help="The address that the gateway answers on over HTTP, without encryption or password. Every client that "
        "reaches it may read what the agent knows, such as the names of VMs; none can change anything. A drop-in for "
        "the systemd unit of the gateway can limit the addresses of clients (IPAddressDeny, IPAddressAllow).",
    ),
    cfg.PortOpt(
        "port",
        default=19177,
        help="The TCP port; 0 leaves HTTP to the Unix socket ([gateway] socket). While it can't be had, the gateway "
        "says so in its log, does its work without, and tries again.",
    ),
]
