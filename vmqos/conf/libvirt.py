# SPDX-License-Identifier: Apache-2.0
"""The ``[libvirt]`` section: which VMs run here."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("libvirt", title="The hypervisor")

OPTIONS = [
    cfg.StrOpt("uri", default="qemu:///system", help="The libvirt connection URI."),
    cfg.StrOpt(
        "run_dir",
        default="/run/libvirt/qemu",
        help="Where libvirt's QEMU driver keeps the PID files of its VMs.",
    ),
]
