# SPDX-License-Identifier: Apache-2.0
"""Making groups where an RMID may be in limbo: that of a group which an earlier test left, for a second or two."""

from __future__ import annotations

from functools import partial

from tests.functional.resctrl_client.mounted import retry
from vmqos.resctrl import exceptions, groups
from vmqos.resctrl.filesystem import Filesystem


def create(fs: Filesystem, *names: str) -> None:
    """Make control groups.

    :raises vmqos.resctrl.exceptions.RmidsInLimbo: if none is free after two minutes.
    """
    for name in names:
        retry(partial(groups.create, fs, name), exceptions.RmidsInLimbo)


def create_monitoring_group(fs: Filesystem, parent: str, name: str) -> None:
    """Make a monitoring group.

    :param parent: its control group; empty for the default group.
    :raises vmqos.resctrl.exceptions.RmidsInLimbo: if none is free after two minutes.
    """
    retry(partial(groups.create_monitoring_group, fs, parent, name), exceptions.RmidsInLimbo)
