# SPDX-License-Identifier: Apache-2.0
"""The locked regions of this host, those of vmqos and those of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from vmqos.group_names import LOCK_PREFIX
from vmqos.host import resctrl_state
from vmqos.pseudo_lock import exceptions
from vmqos.resctrl import groups, info, mount, pseudo_lock, topology
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem
from vmqos.resctrl.groups import ControlGroup


@dataclass(frozen=True, slots=True)
class Host:
    """Where to lock, and what the operator's configuration says of it.

    :ivar path: where resctrl is mounted.
    :ivar sysfs: where the kernel says which CPUs share which cache.
    :ivar timeout: seconds to wait for the lock on resctrl; ``None`` waits for ever.
    :ivar floor: how many ways the default group keeps on each cache.
    :ivar reserved: L3 ways, hexadecimal, that are left alone.
    :ivar proc: where procfs is mounted.
    """

    path: str
    sysfs: str = topology.SYSFS_CPU
    timeout: float | None = None
    floor: int = 2
    reserved: str = "0"
    proc: str = "/proc"


@dataclass(frozen=True, slots=True)
class Lock:
    """A locked region, or what is on the way to be one.

    :ivar name: what the operator calls it: for one of ours without the prefix.
    :ivar group: its control group; empty where that is gone.
    :ivar ours: whether vmqos made it.
    :ivar mode: the group's mode: ``pseudo-locked``, or ``pseudo-locksetup`` where it was never finished, or another
        one where it was only just begun.
    :ivar resource: the cache's name in schemata; empty where nothing is locked yet, or the cache went offline: the
        kernel does not tell any more which one it was.
    :ivar cache_id: which of these caches; ``None`` where ``resource`` is empty.
    :ivar mask: its ways.
    :ivar size: bytes.
    :ivar cpus: the CPUs of that cache, as the kernel lists them: who maps it must be confined to them.
    :ivar device: the path of its device; empty where there is none.
    """

    name: str
    group: str
    ours: bool
    mode: str
    resource: str = ""
    cache_id: int | None = None
    mask: CapacityBitmask = field(default_factory=CapacityBitmask)
    size: int = 0
    cpus: str = ""
    device: str = ""

    @property
    def cache(self) -> str:
        """The cache as the operator names it; empty where nothing is locked yet, or the cache went offline."""
        return f"{self.resource}:{self.cache_id}" if self.resource else ""

    @property
    def is_finished(self) -> bool:
        """Whether something was locked."""
        return self.mode == pseudo_lock.LOCKED


def list_locks(host: Host) -> list[Lock]:
    """Every locked region of this host, those of others too, by name.

    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl is not there or can't be read.
    """
    filesystem = Filesystem(mount.find(host.path, writable=False).path)
    with filesystem.lock(exclusive=False, timeout=host.timeout):
        return read(filesystem, groups.list_control_groups(filesystem))


def find(host: Host, name: str) -> Lock:
    """The lock of that name: one of ours, or else another program's group.

    :raises vmqos.pseudo_lock.exceptions.NoSuchLock: if there is none.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl is not there or can't be read.
    """
    return named(name, list_locks(host))


def read(filesystem: Filesystem, found: Iterable[ControlGroup]) -> list[Lock]:
    """The regions of these control groups and those that are left of others; the caller holds the lock on resctrl."""
    # A group of ours in another mode was left by a command that was killed right after it had made the group.
    ours_or_locked = (one for one in found if one.name.startswith(LOCK_PREFIX) or one.mode in pseudo_lock.MODES)
    locks = [_lock(filesystem, group) for group in ours_or_locked]
    return [*sorted(locks, key=lambda lock: (not lock.ours, lock.name)), *_left(filesystem, locks)]


def _lock(filesystem: Filesystem, group: ControlGroup) -> Lock:
    ours = group.name.startswith(LOCK_PREFIX)
    name = group.name.removeprefix(LOCK_PREFIX)
    where = [(resource, cache_id) for resource, masks in group.schemata.items() for cache_id in masks]
    if group.mode != pseudo_lock.LOCKED:
        return Lock(name, group.name, ours, group.mode)
    device = pseudo_lock.device(group.name)
    device = device if pseudo_lock.is_device(device) else ""
    if not where:
        return Lock(name, group.name, ours, group.mode, device=device)
    ((resource, cache_id),) = where[:1]
    return Lock(
        name=name,
        group=group.name,
        ours=ours,
        mode=group.mode,
        resource=resource,
        cache_id=cache_id,
        mask=group.masks(resource)[cache_id],
        size=pseudo_lock.read_sizes(filesystem, group.name)[resource][cache_id],
        cpus=filesystem.read(group.name, "cpus_list").strip(),
        device=device,
    )


def _left(filesystem: Filesystem, locks: Iterable[Lock]) -> Iterator[Lock]:
    """Ways that are locked although their group is gone."""
    for resource in info.read_capabilities(filesystem).caches:
        for cache_id, mask in info.read_pseudo_locked(filesystem, resource).items():
            for lock in locks:
                if (lock.resource, lock.cache_id) == (resource, cache_id):
                    mask -= lock.mask
            if mask:
                yield Lock(resctrl_state.LEFT_LOCKED, "", False, pseudo_lock.LOCKED, resource, cache_id, mask)


def named(name: str, locks: Iterable[Lock]) -> Lock:
    """The lock of that name: one of ours, or else another program's group.

    :raises vmqos.pseudo_lock.exceptions.NoSuchLock: if there is none.
    """
    known = list(locks)
    found = [lock for lock in known if name in (lock.name, lock.group) and lock.group]
    if not found:
        names = ", ".join(lock.name for lock in known if lock.group) or "none"
        raise exceptions.NoSuchLock(name=name, known=names)
    return found[0]
