# SPDX-License-Identifier: Apache-2.0
"""All options, for the sample file's generator and for :mod:`vmqos.conf.loader`."""

from __future__ import annotations

from oslo_config import cfg

from vmqos.conf import (
    agent,
    allocation,
    api,
    gateway,
    http,
    libvirt,
    notifications,
    nova,
    placement,
    resctrl,
    telemetry,
)

SECTIONS = (agent, allocation, api, gateway, http, libvirt, notifications, nova, placement, resctrl, telemetry)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """What ``oslo-config-generator`` asks for (entry point ``oslo.config.opts``)."""
    return [(section.GROUP, section.OPTIONS) for section in SECTIONS]
