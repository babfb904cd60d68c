# SPDX-License-Identifier: Apache-2.0
"""The ``[agent]`` section: the loop."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("agent", title="The agent's loop")

OPTIONS = [
    cfg.StrOpt(
        "state_path",
        default="/run/vmqos",
        help="The directory of the API socket and of [telemetry] minutes_file. Nothing in it outlives a reboot, or has "
        "to.",
    ),
    cfg.FloatOpt(
        "audit_interval",
        default=1.0,
        min=0.1,
        help="Seconds between two audits: a look at resctrl's groups and the default group's tasks. Events of "
        "libvirt are acted on at once, whatever this is.",
    ),
    cfg.FloatOpt(
        "full_audit_interval",
        default=60.0,
        min=1.0,
        help="Seconds between two full audits, which read every VM's description and every task's group again.",
    ),
    cfg.FloatOpt(
        "retry_delay_min",
        default=1.0,
        min=0.1,
        help="Seconds until something that failed for a VM is tried again; each further failure doubles them.",
    ),
    cfg.FloatOpt("retry_delay_max", default=60.0, min=0.1, help="The longest of these delays, in seconds."),
]
