# SPDX-License-Identifier: Apache-2.0
"""Making, removing and renaming groups (the kernel's ``rdtgroup_mkdir``, ``_rmdir`` and ``_rename``)."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable

from vmqos.simulator.files import group_files, pseudo_lock
from vmqos.simulator.files.state import Group, Mode, Mounted
from vmqos.simulator.hardware.resources import UNLIMITED_MBPS, Domain, Schema
from vmqos.simulator.kernel.numbers import refusal
from vmqos.simulator.kernel.tree import Caller, Directory, Node


def make(mounted: Mounted, parent: Directory, name: str, permissions: int, caller: Caller) -> None:
    """``mkdir``.

    :raises OSError: ``EEXIST``, ``EINVAL``, ``EPERM``, ``ENOSPC`` or ``EBUSY``.
    """
    if parent.get(name) is not None:
        raise refusal(errno.EEXIST)
    if "\n" in name:
        raise refusal(errno.EINVAL)
    mounted.hardware.check_limbo()
    profile = mounted.hardware.profile
    control = profile.can_allocate and parent is mounted.root
    in_mon_groups = _is_mon_groups(parent, name)
    if not control and not profile.monitoring:
        raise refusal(errno.EPERM)
    if not control and mounted.kernel.mkdir_outside == errno.EPERM and not in_mon_groups:
        raise refusal(errno.EPERM)
    if not isinstance(parent.group, Group):
        raise refusal(mounted.kernel.mkdir_outside)
    if mounted.kernel.mkdir_clears_status:
        mounted.status.clear()
    if control:
        _make_control(mounted, name, permissions, caller)
    elif in_mon_groups:
        _make_monitoring(mounted, parent.group, parent, name, permissions, caller)
    else:
        raise refusal(errno.EPERM)


def remove(mounted: Mounted, node: Directory) -> None:
    """``rmdir``.

    :raises OSError: ``EPERM`` for anything that is no group.
    """
    group = node.group
    if not isinstance(group, Group) or group.directory is not node or group is mounted.default:
        raise refusal(errno.EPERM)
    hardware = mounted.hardware
    hardware.check_limbo()
    now = hardware.clock()
    if group.parent is not None:
        parent = group.parent
        hardware.members.move_all(group.has_task, parent.closid, parent.rmid)
        hardware.rmids.give_back(group.rmid, now)
        parent.children.remove(group)
    elif group.mode in (Mode.LOCK_SETUP, Mode.LOCKED):
        if group.mode is Mode.LOCK_SETUP:
            # A locked group gave its class back when it was locked.
            mounted.free_closid(group.closid)
        pseudo_lock.release(group)
        mounted.groups.remove(group)
    else:
        hardware.members.move_all(group.has_task, mounted.default.closid, mounted.default.rmid)
        mounted.default.cpus |= group.cpus
        hardware.rmids.give_back(group.rmid, now)
        mounted.free_closid(group.closid)
        mounted.groups.remove(group)
        for child in group.children:
            hardware.rmids.give_back(child.rmid, now)
    assert node.parent is not None
    node.parent.remove(node.name)


def rename(mounted: Mounted, node: Node, target: Directory, name: str) -> None:
    """``rename``: a monitoring group may get another name or another parent.

    :raises OSError: ``EPERM`` for anything else, ``EEXIST`` if the name is taken.
    """
    if node.parent is None:
        raise refusal(errno.EPERM)
    group = node.group if isinstance(node, Directory) else node.parent.group
    if not isinstance(group, Group) or not isinstance(target.group, Group):
        raise refusal(errno.ENOENT)
    status = mounted.status
    status.clear()
    reason = ""
    if not isinstance(node, Directory):
        # The kernel's text has no newline.
        reason = "Source and destination must be directories"
    elif not group.is_monitoring or not _is_mon_groups(node.parent, node.name):
        reason = "Source must be a MON group\n"
    elif not _is_mon_groups(target, name):
        reason = "Destination must be a mon_groups subdirectory\n"
    elif group.cpus and group.parent is not target.group:
        reason = "Cannot move a MON group that monitors CPUs\n"
    if reason:
        status.puts(reason)
        raise refusal(errno.EPERM)
    node.parent.move(node, target, name)
    if group.parent is not None and group.parent is not target.group:
        group.parent.children.remove(group)
        target.group.children.append(group)
        group.parent = target.group
        group.closid = target.group.closid
        mounted.hardware.members.move_all(group.has_task, group.closid, group.rmid)


def _is_mon_groups(parent: Directory, name: str) -> bool:
    return parent.name == "mon_groups" and name != "mon_groups"


def _make_monitoring(
    mounted: Mounted, parent: Group, folder: Directory, name: str, permissions: int, caller: Caller
) -> None:
    if parent.mode in (Mode.LOCK_SETUP, Mode.LOCKED):
        mounted.status.puts("Pseudo-locking in progress\n")
        raise refusal(errno.EINVAL)
    rmid = _take(mounted, mounted.hardware.rmids.take, "Out of RMIDs\n")
    directory = Directory(name, permissions, caller)
    group = Group(directory, parent.closid, rmid, parent)
    directory.group = group
    group_files.fill(mounted, group, caller)
    folder.add(directory)
    parent.children.append(group)


def _make_control(mounted: Mounted, name: str, permissions: int, caller: Caller) -> None:
    hardware = mounted.hardware
    closid = _take(mounted, mounted.take_closid, "Out of CLOSIDs\n")
    rmid = 0
    try:
        if hardware.profile.monitoring:
            rmid = _take(mounted, hardware.rmids.take, "Out of RMIDs\n")
        _set_initial_values(mounted, closid)
    except OSError:
        hardware.rmids.give_back(rmid, hardware.clock())
        mounted.free_closid(closid)
        raise
    directory = Directory(name, permissions, caller)
    group = Group(directory, closid, rmid, event=mounted.default_event)
    directory.group = group
    group_files.fill(mounted, group, caller)
    if hardware.profile.monitoring:
        mon_groups = Directory("mon_groups", stat.S_IMODE(directory.mode), caller, group)
        directory.add(mon_groups)
    mounted.root.add(directory)
    mounted.groups.insert(0, group)


def _take(mounted: Mounted, take: Callable[[], int], message: str) -> int:
    try:
        return take()
    except OSError:
        mounted.status.puts(message)
        raise


def _set_initial_values(mounted: Mounted, closid: int) -> None:
    """Give a new class all that is shareable or unused (``rdtgroup_init_alloc``)."""
    for schema in mounted.schemas:
        schema.resource.clear_staged()
    for schema in mounted.schemas:
        for domain in schema.resource.domains:
            if schema.software_control:
                domain.mbps[closid] = UNLIMITED_MBPS
            elif schema.resource.cache:
                domain.staged[schema.use] = initial_mask(mounted, schema, domain, closid)
            else:
                domain.staged[schema.use] = schema.resource.default
        schema.resource.apply_staged(closid)
    for schema in mounted.schemas:
        schema.resource.clear_staged()


def initial_mask(mounted: Mounted, schema: Schema, domain: Domain, closid: int) -> int:
    """All ways of a cache that are shareable or unused, for a new class (``__init_one_rdt_domain``).

    :raises OSError: ``ENOSPC`` if too few ways are left.
    """
    cache = schema.resource.cache
    assert cache is not None
    uses = (schema.use, schema.use.peer) if mounted.cdp_enabled(schema.resource) else (schema.use,)
    mask = used = cache.shareable_bits
    for other, mode in mounted.taken_closids():
        if other == closid or mode is Mode.LOCK_SETUP:
            continue
        for use in uses:
            value = schema.resource.value(domain, other, use)
            used |= value
            if mode is Mode.SHAREABLE:
                mask |= value
    if domain.region:
        used |= domain.region.mask
    mask |= schema.resource.default & ~used
    if not (cache.sparse and mounted.kernel.starts_sparse):
        # Only the lowest run of ways is kept (cbm_ensure_valid).
        lowest = mask & -mask
        mask &= ~(mask + lowest)
    if mask.bit_count() < cache.min_cbm_bits:
        mounted.status.printf(f"No space on {schema.name}:{domain.id}\n")
        raise refusal(errno.ENOSPC)
    return mask
