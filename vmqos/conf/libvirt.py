# SPDX-License-Identifier: Apache-2.0
"""The ``[libvirt]`` section: which VMs run here."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("libvirt", title="The hypervisor")

OWN_WAYS, DEFAULT_GROUP = "own-ways", "default-group"

OPTIONS = [
    cfg.StrOpt("uri", default="qemu:///system", help="The libvirt connection URI."),
    cfg.StrOpt(
        "run_dir",
        default="/run/libvirt/qemu",
        help="Where libvirt's QEMU driver keeps the PID files and the status files of its VMs.",
    ),
    cfg.BoolOpt(
        "watch_starts",
        default=True,
        help="Whether to watch the status files in run_dir, so that a VM's cache ways are in force before its first "
        "instruction runs. Without it, they are in force once libvirt tells that the VM was started. libvirt never "
        "waits for the agent, either way.",
    ),
    cfg.StrOpt(
        "incoming_memory",
        default=OWN_WAYS,
        choices=[
            (OWN_WAYS, "all threads of its QEMU are in its group from the beginning"),
            (DEFAULT_GROUP, "only the threads of its vCPUs are there, and the other threads follow when it runs"),
        ],
        help="Whose cache the memory of a VM goes through that comes from another host by live migration.",
    ),
]
