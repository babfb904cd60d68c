# SPDX-License-Identifier: Apache-2.0
"""resctrl as it is at one moment: what the machine can do, whose groups there are, what they hold."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from vmqos.allocation import Group, Layout, Owner, owner_of
from vmqos.resctrl import bit_usage, exceptions, groups, info, schemata
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import Capabilities
from vmqos.resctrl.filesystem import Filesystem

PSEUDO_LOCKED = "pseudo-locked"
"""The mode of a group that has lines locked into its ways: it has no tasks, no CLOSID and no RMID any more."""

LEFT_LOCKED = "(pseudo-locked by a group that is gone)"
"""Stands for the ways that the kernel keeps although no group has them any more; no group is called so."""


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
    raw: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict, repr=False)
    """Each control group's ``mode`` and ``schemata`` as they were read: while they stay, nothing is parsed again."""
    links: tuple[int, ...] = field(default=(), repr=False)
    """How many links each ``mon_groups`` has: while they stay, none of them is listed again (before a full audit)."""

    @property
    def rmids_in_use(self) -> int:
        """How many RMIDs the groups hold: one each."""
        return self.layout.closids_in_use + sum(map(len, self.monitoring_groups.values()))

    def group(self, name: str) -> Group | None:
        """The control group of that name."""
        return next((group for group in self.layout.groups if group.name == name), None)


def look(filesystem: Filesystem, before: ResctrlView | None = None) -> ResctrlView:
    """Read every control group once; the caller holds the lock.

    :param before: the last look; the very same value is returned where nothing has changed since.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
    """
    try:
        status = os.stat(filesystem.root)
    except OSError as error:
        raise exceptions.Vanished(path=filesystem.root) from error
    mounted_as = (status.st_dev, status.st_ino)
    if before is not None and before.mounted_as != mounted_as:
        before = None
    raw = groups.read_raw(filesystem)
    links = tuple(_links(filesystem, name) for name in raw)
    if before is not None and raw == before.raw and not _is_released(filesystem, before):
        if links == before.links:
            return before
        return replace(before, monitoring_groups=_monitoring_groups(filesystem, before.capabilities, raw), links=links)
    modes = {name: mode.decode().strip() for name, (mode, _) in raw.items()}
    found = [_group(name, modes[name], schemata.parse_masks(text.decode(), "L3")) for name, (_, text) in raw.items()]
    left = _left_locked(filesystem, found)
    if left:
        found.append(_group(LEFT_LOCKED, PSEUDO_LOCKED, left))
        modes[LEFT_LOCKED] = PSEUDO_LOCKED
    layout = Layout(tuple(found))
    if before is not None and _same_caches(before.layout, layout):
        capabilities = before.capabilities
    else:
        capabilities = info.read_capabilities(filesystem)
    monitoring = _monitoring_groups(filesystem, capabilities, raw)
    return ResctrlView(mounted_as, capabilities, layout, modes, monitoring, raw, links)


def _group(name: str, mode: str, masks: Mapping[int, CapacityBitmask]) -> Group:
    locked = mode == PSEUDO_LOCKED
    return Group(
        name=name,
        owner=Owner.FOREIGN if locked else owner_of(name),
        masks=masks,
        exclusive=locked or mode == "exclusive",
        holds_closid=not locked,
    )


def _left_locked(filesystem: Filesystem, found: Iterable[Group]) -> dict[int, CapacityBitmask]:
    """The pseudo-locked ways that no group has any more, by cache id."""
    locked = bit_usage.read_pseudo_locked(filesystem)
    for group in found:
        for cache in locked.keys() & group.masks.keys():
            locked[cache] -= group.masks[cache]
    return {cache: ways for cache, ways in locked.items() if ways}


def _is_released(filesystem: Filesystem, before: ResctrlView) -> bool:
    """Whether ways that were left locked no longer are: that changes no group."""
    left = before.group(LEFT_LOCKED)
    others = (group for group in before.layout.groups if group.name != LEFT_LOCKED)
    return left is not None and _left_locked(filesystem, others) != left.masks


def _links(filesystem: Filesystem, control: str) -> int:
    """A directory has a link for each directory in it; 0 where there is none (any more)."""
    try:
        return os.stat(filesystem.path(control, groups.MON_GROUPS)).st_nlink
    except OSError:
        return 0


def _monitoring_groups(
    filesystem: Filesystem, capabilities: Capabilities, names: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    if capabilities.monitoring is None:
        return {}
    found = {}
    for name in names:
        # A foreign group may be removed at any moment, by somebody who takes no lock.
        with contextlib.suppress(exceptions.Vanished):
            found[name] = tuple(groups.list_monitoring_groups(filesystem, name))
    return found


def _same_caches(before: Layout, now: Layout) -> bool:
    """Whether the same caches are online, by the masks of the first group, the default one."""
    return [set(group.masks) for group in before.groups[:1]] == [set(group.masks) for group in now.groups[:1]]
