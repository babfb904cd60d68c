# SPDX-License-Identifier: Apache-2.0
"""The ``[gateway]`` section: how the agent and the gateway meet."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("gateway", title="The gateway, which is the network side of vmqos")

OPTIONS = [
    cfg.StrOpt(
        "user",
        default="vmqos-gateway",
        help="The user that vmqos-gateway runs as. Beside root and the agent's own user, only this user may connect to "
        "[gateway] agent_socket.",
    ),
    cfg.StrOpt(
        "agent_socket",
        default="$agent.state_path/gateway.sock",
        sample_default="/run/vmqos/gateway.sock",
        help="The Unix socket on which the agent answers the gateway. The gateway alone can write something through "
        "it: the extra specs of a flavor that the agent asked for.",
    ),
    cfg.StrOpt(
        "socket",
        default="/run/vmqos-gateway/gateway.sock",
        help="The Unix socket that the gateway answers on, with what it also serves on [http] port: the metrics, the "
        "page, and the API with what is known of Placement and Nova.",
    ),
    cfg.StrOpt(
        "socket_mode",
        regex=r"^0?[0-7]{3}$",
        default="660",
        help="Permissions of [gateway] socket in octal. Every process that may write to it may read what the agent "
        "knows; no process can change anything through it.",
    ),
    cfg.BoolOpt(
        "old_metrics",
        default=True,
        help="Whether /metrics also has the metrics that others have replaced, and the labels name, project and flavor "
        "on the metrics of a VM, so that dashboards and alerts made for them go on working. With false, the text is "
        "shorter, by 44 % on a host with 24 L3 caches. The next release has neither the old metrics nor this option.",
    ),
]
