# SPDX-License-Identifier: Apache-2.0
"""What this host offers and who has what of it, read without a running agent."""

from __future__ import annotations

from oslo_config import cfg

from vmqos.agent import inspection
from vmqos.resctrl import info, mount
from vmqos.resctrl.filesystem import Filesystem


def inspect(conf: cfg.ConfigOpts) -> inspection.Json:
    """What the configured resctrl tells, see :mod:`vmqos.agent.inspection`, with the control groups in ``groups``.

    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl is not there or can't be read.
    """
    filesystem = Filesystem(mount.find(conf.resctrl.path, writable=False).path)
    with filesystem.lock(exclusive=False, timeout=conf.resctrl.lock_timeout):
        found = info.read_capabilities(filesystem)
        told = inspection.capabilities(filesystem, found, conf.resctrl.sysfs_cpu_path)
        return told | {"groups": inspection.control_groups(filesystem)}
