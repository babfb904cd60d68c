# SPDX-License-Identifier: Apache-2.0
"""What this host offers, read without a running agent."""

from __future__ import annotations

from oslo_config import cfg

from vmqos.resctrl import info, mount
from vmqos.resctrl.capabilities import Capabilities
from vmqos.resctrl.filesystem import Filesystem


def read_capabilities(conf: cfg.ConfigOpts) -> Capabilities:
    """What ``info/`` of the configured resctrl says.

    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl is not there or can't be read.
    """
    filesystem = Filesystem(mount.find(conf.resctrl.path, writable=False).path)
    with filesystem.lock(exclusive=False, timeout=conf.resctrl.lock_timeout):
        return info.read_capabilities(filesystem)
