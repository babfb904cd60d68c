# SPDX-License-Identifier: Apache-2.0
"""resctrl as it is at one moment: what the machine can do, whose groups there are, what they hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from vmqos.allocation import Group, Layout, owner_of
from vmqos.resctrl import groups, info, schemata
from vmqos.resctrl.capabilities import Capabilities
from vmqos.resctrl.filesystem import Filesystem


@dataclass(frozen=True, slots=True)
class ResctrlView:
    """One look at resctrl.

    :ivar mounted_as: device and inode of the root; another one means that resctrl was mounted anew.
    :ivar capabilities: what ``info/`` says.
    :ivar layout: the control groups, as the planner wants them.
    :ivar modes: each control group's mode by its name.
    :ivar monitoring_groups: the names of the monitoring groups by their control group's name.
    """

    mounted_as: tuple[int, int]
    capabilities: Capabilities
    layout: Layout
    modes: Mapping[str, str]
    monitoring_groups: Mapping[str, tuple[str, ...]]

    @property
    def rmids_in_use(self) -> int:
        """How many RMIDs the groups hold: one each."""
        return len(self.layout.groups) + sum(map(len, self.monitoring_groups.values()))

    def group(self, name: str) -> Group | None:
        """The control group of that name."""
        return next((group for group in self.layout.groups if group.name == name), None)


def look(filesystem: Filesystem, before: ResctrlView | None = None) -> ResctrlView:
    """Read every control group once; the caller holds the lock.

    :param before: the last look. What only a new mount can change is taken over from it.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
    """
    status = os.stat(filesystem.root)
    mounted_as = (status.st_dev, status.st_ino)
    found = groups.list_control_groups(filesystem)
    layout = Layout(
        tuple(
            Group(
                name=group.name,
                owner=owner_of(group.name),
                masks=schemata.masks_of(group.schemata, "L3"),
                exclusive=group.mode == "exclusive",
            )
            for group in found
        )
    )
    if before is not None and before.mounted_as == mounted_as and _same_caches(before.layout, layout):
        capabilities = before.capabilities
    else:
        capabilities = info.read_capabilities(filesystem)
    monitoring = {}
    if capabilities.monitoring is not None:
        monitoring = {
            group.name: tuple(sorted(groups.list_monitoring_groups(filesystem, group.name))) for group in found
        }
    return ResctrlView(mounted_as, capabilities, layout, {group.name: group.mode for group in found}, monitoring)


def _same_caches(before: Layout, now: Layout) -> bool:
    """Whether the same caches are online, by the masks of the first group, the default one."""
    return [set(group.masks) for group in before.groups[:1]] == [set(group.masks) for group in now.groups[:1]]
