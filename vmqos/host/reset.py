# SPDX-License-Identifier: Apache-2.0
"""Taking back everything the agent did to resctrl: its groups go, their ways return to the default group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from vmqos.group_names import DEFAULT_GROUP, PREFIX
from vmqos.resctrl import groups, info, mount, pseudo_lock, schemata, tasks
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource
from vmqos.resctrl.filesystem import Filesystem
from vmqos.resctrl.groups import ControlGroup

Masks = Mapping[int, CapacityBitmask]


@dataclass(frozen=True, slots=True)
class Reset:
    """What a reset does, or has done.

    :ivar control_groups: the control groups to remove, each with how many tasks fall back to the default group.
    :ivar monitoring_groups: names of the monitoring groups of the default group to remove.
    :ivar grown: the default group's new masks by resource and cache id, only those that change.
    """

    control_groups: Mapping[str, int]
    monitoring_groups: tuple[str, ...]
    grown: Mapping[str, Masks]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.control_groups or self.monitoring_groups or self.grown)

    def describe(self) -> list[str]:
        """A sentence for each step, in the order of the steps."""
        steps = [
            f"remove the control group {name}; its tasks ({count}) return to the default group"
            for name, count in self.control_groups.items()
        ]
        steps += [f"remove the monitoring group mon_groups/{name}" for name in self.monitoring_groups]
        steps += [
            f"write {schemata.format_values(resource, masks)} to the default group's schemata"
            for resource, masks in self.grown.items()
        ]
        return steps


def prepare(path: str, reserved: str = "0", timeout: float | None = None) -> Reset:
    """Look at what a reset would do; nothing is written.

    :param path: where resctrl is mounted.
    :param reserved: L3 ways, hexadecimal, that the default group does not get back (``[allocation] reserved_ways``).
    :param timeout: seconds to wait for the lock on resctrl; ``None`` waits for ever.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl is not there or can't be read.
    """
    filesystem = Filesystem(mount.find(path, writable=False).path)
    with filesystem.lock(exclusive=False, timeout=timeout):
        return _look(filesystem, CapacityBitmask.parse(reserved))


def perform(path: str, reserved: str = "0", timeout: float | None = None) -> Reset:
    """Do it, under the lock and by what is there now; the parameters are those of :func:`prepare`.

    The groups go first: while one of them is in mode ``exclusive``, the kernel refuses the default group its ways.

    :returns: what was done.
    :raises vmqos.resctrl.exceptions.ResctrlError: if a step fails; the steps before it remain done.
    """
    filesystem = Filesystem(mount.find(path).path)
    with filesystem.lock(exclusive=True, timeout=timeout):
        reset = _look(filesystem, CapacityBitmask.parse(reserved))
        for name in reset.control_groups:
            groups.remove(filesystem, name)
        for name in reset.monitoring_groups:
            groups.remove_monitoring_group(filesystem, DEFAULT_GROUP, name)
        for resource, masks in reset.grown.items():
            groups.write_values(filesystem, DEFAULT_GROUP, resource, masks)
        return reset


def _look(filesystem: Filesystem, reserved: CapacityBitmask) -> Reset:
    found = groups.list_control_groups(filesystem)
    capabilities = info.read_capabilities(filesystem)
    monitored = capabilities.monitoring is not None
    # Locked regions are the operator's own doing: 'vmqos lock remove' removes them, unless a process uses them.
    ours = [group.name for group in found if group.name.startswith(PREFIX) and group.mode not in pseudo_lock.MODES]
    grown = {}
    for name, cache in capabilities.caches.items():
        kept = reserved if cache.level == 3 else CapacityBitmask()
        masks = grow_default(found, cache, kept, locked=info.read_pseudo_locked(filesystem, name))
        if masks:
            grown[name] = masks
    return Reset(
        control_groups={name: len(tasks.read_tasks(filesystem, name)) for name in ours},
        monitoring_groups=tuple(
            name
            for name in (sorted(groups.list_monitoring_groups(filesystem, DEFAULT_GROUP)) if monitored else ())
            if name.startswith(PREFIX)
        ),
        grown=grown,
    )


def grow_default(
    found: Iterable[ControlGroup],
    cache: CacheResource,
    reserved: CapacityBitmask,
    keep_ours: bool = False,
    locked: Masks = MappingProxyType({}),
) -> dict[int, CapacityBitmask]:
    """The masks that the default group has once none of our groups is left, where they differ from those of now.

    It gets every way that no other owner's group holds, for code or for data, that is not ``locked``, and that
    ``reserved`` does not name. Ways that it shares with another owner's group already it keeps: that owner saw them
    shared. Where a mask may not have gaps it gets the run of ways around those it has, so that it never loses one.

    :param keep_ours: whether our groups keep their ways instead.
    :param locked: the pseudo-locked ways by cache id, which the kernel gives to no group.
    """
    groups_now = list(found)
    default = next((group for group in groups_now if group.name == DEFAULT_GROUP), None)
    if default is None:
        return {}
    holders = [
        masks
        for group in groups_now
        for masks in (group.masks(name) for name in (f"L{cache.level}", f"L{cache.level}CODE", f"L{cache.level}DATA"))
        if group.name != DEFAULT_GROUP and (keep_ours or not group.name.startswith(PREFIX))
    ]
    result = {}
    for cache_id, now in default.masks(cache.name).items():
        free = cache.cbm_mask - reserved - locked.get(cache_id, CapacityBitmask())
        for masks in holders:
            free -= masks.get(cache_id, CapacityBitmask())
        mask = now | free
        if not cache.sparse_masks:
            mask = next((run for run in mask.runs() if run.overlaps(now)), now)
        if mask != now:
            result[cache_id] = mask
    return result
