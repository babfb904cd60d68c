# SPDX-License-Identifier: Apache-2.0
"""resctrl as it is at one moment: what the machine can do, whose groups there are, what they hold."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from vmqos.allocation import Group, Layout, Split, caches
from vmqos.group_names import DEFAULT_GROUP, Owner, owner_of, vm_group, vm_of
from vmqos.resctrl import exceptions, groups, info, mount, pseudo_lock, schemata
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import Capabilities
from vmqos.resctrl.filesystem import Filesystem

LEFT_LOCKED = "(pseudo-locked by a group that is gone)"
"""Stands for the ways that the kernel keeps although no group has them any more; no group is called so."""


@dataclass(frozen=True, slots=True)
class ResctrlState:
    """resctrl at one moment.

    :ivar mounted_as: what no other mount has; see :func:`_mounted_as`.
    :ivar capabilities: what ``info/`` says.
    :ivar layout: the control groups, as the planner wants them.
    :ivar modes: each control group's mode by its name.
    :ivar monitoring_groups: the names of the monitoring groups by their control group's name.
    """

    mounted_as: tuple[int, int, int]
    capabilities: Capabilities
    layout: Layout
    modes: Mapping[str, str]
    monitoring_groups: Mapping[str, tuple[str, ...]]
    raw: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict, repr=False, compare=False)
    """Each control group's ``mode`` and ``schemata`` as they were read: while they stay, nothing is parsed again."""
    links: tuple[int, ...] = field(default=(), repr=False, compare=False)
    """How many links each ``mon_groups`` has: while they stay, none of them is listed again (before a full audit)."""
    simulated: bool = False
    """Whether it is a filesystem in user space that plays resctrl."""

    @property
    def closids_in_use(self) -> int:
        """How many CLOSIDs the control groups take."""
        return sum(group.holds_closid for group in self.layout.groups)

    @property
    def rmids_in_use(self) -> int:
        """How many RMIDs the groups hold: one each."""
        return self.closids_in_use + sum(map(len, self.monitoring_groups.values()))

    def lacks_rmids(self, count: int) -> bool:
        """Whether fewer RMIDs are left than this many groups need; never where no group needs one."""
        monitoring = self.capabilities.monitoring
        return monitoring is not None and self.rmids_in_use + count > monitoring.num_rmids

    @property
    def monitored(self) -> frozenset[str]:
        """UUIDs of the VMs that have a monitoring group, in whichever control group of ours."""
        return frozenset(
            uuid
            for control, names in self.monitoring_groups.items()
            if owner_of(control) is not Owner.FOREIGN
            for uuid in map(vm_of, names)
            if uuid is not None
        )

    def counts_apart(self, uuid: str) -> bool:
        """Whether a monitoring group in the default group counts some of the VM's tasks, or all of them."""
        return vm_group(uuid) in self.monitoring_groups.get(DEFAULT_GROUP, ())

    def after(self, layout: Layout) -> ResctrlState:
        """The state once the control groups are these, as far as it can be told without reading it."""
        before = {group.name: group for group in self.layout.groups}
        bandwidth = self.capabilities.memory_bandwidth
        groups, modes = list[Group](), dict[str, str]()
        for group in sorted(layout.groups, key=lambda group: (group.name == LEFT_LOCKED, group.name)):
            known = before.get(group.name)
            if known is None and bandwidth is not None:
                # The kernel limits a new group to nothing less than all.
                limits = dict.fromkeys(before[DEFAULT_GROUP].throttles, bandwidth.unit.unlimited)
                group = replace(group, throttles={**limits, **group.throttles})
            groups.append(group)
            is_same = known is not None and known.exclusive == group.exclusive
            modes[group.name] = self.modes[group.name] if is_same else "exclusive" if group.exclusive else "shareable"
        inside = {group.name: self.monitoring_groups.get(group.name, ()) for group in groups}
        names = inside if self.capabilities.monitoring is not None else {}
        return replace(self, layout=Layout(tuple(groups)), modes=modes, monitoring_groups=names, raw={}, links=())

    def monitoring(self, uuid: str, control: str) -> ResctrlState:
        """The state once the VM has a monitoring group in that control group; not read."""
        names = tuple(sorted({*self.monitoring_groups.get(control, ()), vm_group(uuid)}))
        return replace(self, monitoring_groups={**self.monitoring_groups, control: names}, raw={}, links=())

    def group(self, name: str) -> Group | None:
        """The control group of that name."""
        return next((group for group in self.layout.groups if group.name == name), None)


def read(filesystem: Filesystem, before: ResctrlState | None = None) -> ResctrlState:
    """Read every control group once; the caller holds the lock.

    :param before: what was read last; the very same value is returned where nothing has changed since.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
    """
    mounted_as = _mounted_as(filesystem)
    if before is not None and before.mounted_as != mounted_as:
        before = None
    raw = groups.read_raw(filesystem)
    links = tuple(_links(filesystem, name) for name in raw)
    # Devices may have been confined to other ways, where they can be at all.
    same_devices = before is not None and all(
        cache.io_alloc is None or cache.io_alloc == info.read_io_alloc(filesystem, name)
        for name, cache in before.capabilities.caches.items()
    )
    is_released = before is not None and LEFT_LOCKED in before.modes and _is_released(filesystem, before)
    if before is not None and raw == before.raw and same_devices and not is_released:
        if links == before.links:
            return before
        return replace(before, monitoring_groups=_monitoring_groups(filesystem, before.capabilities, raw), links=links)
    modes = {name: mode.decode(errors="replace").strip() for name, (mode, _) in raw.items()}
    found = [_group(name, *texts) for name, texts in raw.items()]
    left = _left_locked(filesystem, found)
    if left:
        found.append(Group(LEFT_LOCKED, Owner.FOREIGN, left, exclusive=True, holds_closid=False))
        modes[LEFT_LOCKED] = pseudo_lock.LOCKED
    layout = Layout(tuple(found))
    if before is not None and same_devices and _same_caches(before.layout, layout):
        capabilities = before.capabilities
    else:
        capabilities = info.read_capabilities(filesystem)
    monitoring = _monitoring_groups(filesystem, capabilities, raw)
    simulated = _is_simulated(filesystem) if before is None else before.simulated
    return ResctrlState(mounted_as, capabilities, layout, modes, monitoring, raw, links, simulated)


def read_what_others_change(filesystem: Filesystem, before: ResctrlState) -> ResctrlState:
    """Read anew which groups there are, the default group and the groups of others; the caller holds the lock.

    Our own groups are taken to be as we left them: whether they are is for an audit to see. That takes a part of the
    time of :func:`read`, which is what a VM that is being started has not. Nor is anything parsed that is as it was
    read last.

    :param before: what was read, or predicted, last; it is returned where others have changed nothing.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
    """
    known = {group.name: group for group in before.layout.groups if group.name != LEFT_LOCKED}
    if before.mounted_as != _mounted_as(filesystem) or set(groups.list_names(filesystem)) != known.keys():
        return read(filesystem, before)
    for name, group in known.items():
        if name == DEFAULT_GROUP or group.owner is Owner.FOREIGN:
            raw = groups.read_raw_of(filesystem, name)
            # What is as it was read last is not parsed again; what was only predicted was never read.
            if raw != before.raw.get(name) and _group(name, *raw) != group:
                return read(filesystem, before)
    return before


def _is_simulated(filesystem: Filesystem) -> bool:
    try:
        return mount.find(filesystem.root, writable=False).simulated
    except exceptions.ResctrlError:
        return False


def _mounted_as(filesystem: Filesystem) -> tuple[int, int, int]:
    """What tells one mount from the next: device and inode of the root, and the nanosecond that ``info`` is from.

    The next mount may well have the same device, whose number the kernel gives out again, and the same inodes; but
    each mount makes its own ``info`` (``rdtgroup_create_info_dir``), which then stays as it is.

    :raises vmqos.resctrl.exceptions.Vanished: if either is not there.
    """
    try:
        root, made = os.stat(filesystem.root), os.stat(filesystem.path("info"))
    except OSError as error:
        raise exceptions.Vanished(path=filesystem.root) from error
    return root.st_dev, root.st_ino, made.st_ctime_ns


def _group(name: str, raw_mode: bytes, raw_schemata: bytes) -> Group:
    mode, values = raw_mode.decode(errors="replace").strip(), schemata.parse(raw_schemata.decode(errors="replace"))
    locked = mode == pseudo_lock.LOCKED
    ways = schemata.code_and_data(values, 3)
    split = dict(ways) if "L3CODE" in values else {}
    of_l2 = {caches.l2(cache): parts for cache, parts in schemata.code_and_data(values, 2).items()}
    ways |= of_l2
    split |= of_l2 if "L2CODE" in values else {}
    return Group(
        name=name,
        owner=Owner.FOREIGN if locked else owner_of(name),
        masks={cache: code | data for cache, (code, data) in ways.items()},
        exclusive=locked or mode == "exclusive",
        holds_closid=not locked,
        throttles=schemata.numbers_of(values, "MB"),
        splits={cache: Split(*parts) for cache, parts in split.items()},
    )


def _left_locked(filesystem: Filesystem, found: Iterable[Group]) -> dict[int, CapacityBitmask]:
    """The pseudo-locked ways that no group has any more, by cache."""
    locked = info.read_pseudo_locked(filesystem, "L3")
    locked |= {caches.l2(cache): ways for cache, ways in info.read_pseudo_locked(filesystem, "L2").items()}
    for group in found:
        for cache in locked.keys() & group.masks.keys():
            locked[cache] -= group.masks[cache]
    return {cache: ways for cache, ways in locked.items() if ways}


def _is_released(filesystem: Filesystem, before: ResctrlState) -> bool:
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
        # A foreign group may be removed at any moment, by a program that takes no lock.
        with contextlib.suppress(exceptions.Vanished):
            found[name] = tuple(groups.list_monitoring_groups(filesystem, name))
    return found


def _same_caches(before: Layout, now: Layout) -> bool:
    """Whether the same caches are online, by the masks and limits of the first group, the default one."""
    first, again = before.groups[0], now.groups[0]
    return first.masks.keys() == again.masks.keys() and first.throttles.keys() == again.throttles.keys()
