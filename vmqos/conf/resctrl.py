# SPDX-License-Identifier: Apache-2.0
"""The ``[resctrl]`` section: where the kernel's resctrl filesystem is."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("resctrl", title="The kernel's resctrl filesystem")

OPTIONS = [
    cfg.StrOpt(
        "path",
        default="/sys/fs/resctrl",
        help="Where resctrl is mounted. The simulator's mount point serves as well.",
    ),
    cfg.StrOpt(
        "sysfs_cpu_path",
        default="/sys/devices/system/cpu",
        help="Where the kernel says which CPUs share which cache. The simulator writes one of its own "
        "(vmqos simulate --sysfs).",
    ),
    cfg.FloatOpt(
        "lock_timeout",
        default=10.0,
        min=0.1,
        help="How many seconds to wait for the lock on resctrl, which libvirt and others take too, before the "
        "pass is given up and tried again.",
    ),
    cfg.StrOpt(
        "readers_group",
        default="resctrl",
        help="The group whose members may read resctrl, such as Ceilometer's user. If this group exists when the agent "
        "starts, the agent closes resctrl to all other users: every process that can open the mount point can lock it, "
        "and then no promise can be kept. Empty leaves the permissions as they are.",
    ),
]
