# SPDX-License-Identifier: Apache-2.0
"""The section ``[vmqos]`` of ``ceilometer.conf``."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("vmqos", title="The cache and bandwidth meters of vmqos")

OPTIONS: list[cfg.Opt] = [
    cfg.StrOpt(
        "resctrl_path",
        default="/sys/fs/resctrl",
        help="Where resctrl is mounted. Set it to what [resctrl] path of the agent's vmqos.conf says. It is read at "
        "the start of ceilometer-polling.",
    ),
    cfg.StrOpt(
        "agent_socket",
        default="/run/vmqos/agent.sock",
        help="The socket of vmqos-agent, which is asked for the meters perf.*. Set it to what [api] socket of the "
        "agent's vmqos.conf says. The user of ceilometer-polling has to be in the group that [api] socket_group names "
        "there.",
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Let the options be read from ``conf``; once more does no harm."""
    conf.register_group(GROUP)
    conf.register_opts(OPTIONS, group=GROUP)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """What ``oslo-config-generator`` asks for (entry point ``oslo.config.opts``)."""
    return [(GROUP, OPTIONS)]
