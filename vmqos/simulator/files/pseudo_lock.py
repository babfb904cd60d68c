# SPDX-License-Identifier: Apache-2.0
"""Cache pseudo-locking as far as it shows in resctrl's own files (the kernel's ``pseudo_lock.c``).

The device ``/dev/pseudo_lock/NAME`` and its debugfs directory are the kernel's alone and are not simulated.
"""

from __future__ import annotations

import errno
import stat

from vmqos.simulator.files.state import Group, Mode, Mounted
from vmqos.simulator.hardware.resources import Domain, LockedRegion, Schema
from vmqos.simulator.kernel.numbers import refusal
from vmqos.simulator.kernel.tree import Directory

_HIDDEN = ("tasks", "cpus", "cpus_list", "mon_groups")


def online_region(mounted: Mounted, region: LockedRegion) -> LockedRegion:
    """The region, its cache being online.

    :raises OSError: ``ENODEV`` if it is not.
    """
    if region.domain not in region.schema.resource.domains:
        mounted.status.clear()
        mounted.status.puts("Cache domain offline\n")
        raise refusal(errno.ENODEV)
    return region


def overlaps(domain: Domain, mask: int) -> bool:
    """Whether a mask meets the pseudo-locked part of a cache."""
    return domain.region is not None and bool(domain.region.mask & mask)


def locked_in_hierarchy(mounted: Mounted, domain: Domain) -> bool:
    """Whether a CPU of this cache already has a pseudo-locked region in its L2 or L3."""
    taken: set[int] = set()
    for resource in mounted.hardware.resources:
        for other in resource.domains:
            if other.region is not None:
                taken |= other.cpus
    return bool(taken & domain.cpus)


def enter_setup(mounted: Mounted, group: Group) -> None:
    """Prepare a group for its region (``rdtgroup_locksetup_enter``).

    :raises OSError: ``EINVAL``, the reason being in ``last_cmd_status``.
    """
    reason = _refusal_to_enter(mounted, group)
    if reason:
        mounted.status.puts(reason)
        raise refusal(errno.EINVAL)
    for name in _HIDDEN:
        _set_permissions(group.directory, name, 0)
    mounted.hardware.rmids.give_back(group.rmid, mounted.hardware.clock())
    group.rmid = 0


def exit_setup(mounted: Mounted, group: Group) -> None:
    """Make an ordinary group of it again (``rdtgroup_locksetup_exit``).

    :raises OSError: ``ENOSPC`` or ``EBUSY`` if no RMID is free.
    """
    if mounted.hardware.profile.monitoring:
        try:
            group.rmid = mounted.hardware.rmids.take()
        except OSError:
            mounted.status.puts("Out of RMIDs\n")
            raise
    for name in _HIDDEN:
        _set_permissions(group.directory, name, 0o644 if name != "mon_groups" else group.directory.mode)
    group.region = None


def choose(group: Group, schema: Schema, domain: Domain) -> None:
    """Remember the region that a valid line asked for."""
    group.region = domain.region = LockedRegion(schema, domain, domain.staged[schema.use])


def create(mounted: Mounted, group: Group) -> None:
    """Lock the chosen region (``rdtgroup_pseudo_lock_create``)."""
    group.mode = Mode.LOCKED
    mounted.free_closid(group.closid)
    for name in ("cpus", "cpus_list"):
        _set_permissions(group.directory, name, 0o444)


def release(group: Group) -> None:
    """Unlock a group's region when the group goes, unless its device is still open."""
    if group.region is not None and not group.region.device_open:
        if group.region.domain.region is group.region:
            group.region.domain.region = None
        group.region = None


def _refusal_to_enter(mounted: Mounted, group: Group) -> str:
    hardware = mounted.hardware
    if group is mounted.default:
        return "Cannot pseudo-lock default group\n"
    if mounted.options.cdp or mounted.options.cdpl2:
        return "CDP enabled\n"
    if not hardware.profile.pseudo_lock:
        return "Pseudo-locking not supported\n"
    if group.children:
        return "Monitoring in progress\n"
    if hardware.members.members(group.has_task):
        return "Tasks assigned to resource group\n"
    if group.cpus:
        return "CPUs assigned to resource group\n"
    return ""


def _set_permissions(directory: Directory, name: str, permissions: int) -> None:
    node = directory.get(name)
    if node is not None:
        node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(permissions)
