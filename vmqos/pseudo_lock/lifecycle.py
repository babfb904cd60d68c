# SPDX-License-Identifier: Apache-2.0
"""Cache pseudo-locking at the operator's command: making and removing locked regions.

This is done by the command itself, not by the agent on its behalf: it holds the lock between applications on resctrl
from the first read to the last write, as each pass of the agent does, and what the agent sees afterwards is a group
whose ways are taken. So there is no call that changes anything in the agent's API, and nothing to agree upon where none
runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmqos.group_names import DEFAULT_GROUP, LOCK_PREFIX, Owner, owner_of
from vmqos.host import reset
from vmqos.pseudo_lock import exceptions, region_users
from vmqos.pseudo_lock.choose_ways import Choice, Holders, choose, most
from vmqos.pseudo_lock.regions import Host, Lock, find, named, read
from vmqos.resctrl import exceptions as resctrl_exceptions
from vmqos.resctrl import groups, info, mount, pseudo_lock, topology
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities
from vmqos.resctrl.filesystem import Filesystem
from vmqos.resctrl.groups import ControlGroup

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A lock to be made.

    :ivar name: what the operator calls it.
    :ivar resource: the cache's name in schemata, ``L2`` or ``L3``.
    :ivar cache_id: which of these caches.
    :ivar size: bytes, 1 or more; whole ways are locked.
    """

    name: str
    resource: str
    cache_id: int
    size: int

    @property
    def group(self) -> str:
        """The control group's name, which is the device's."""
        return LOCK_PREFIX + self.name

    @property
    def cache(self) -> str:
        """The cache as the operator names it, such as ``L2:1``."""
        return f"{self.resource}:{self.cache_id}"


def check(host: Host, wanted: Wanted) -> frozenset[int]:
    """Refuse what can't be locked, as :func:`create` would; nothing is written.

    :returns: the CPUs of the cache; none where the kernel does not say.
    :raises vmqos.pseudo_lock.exceptions.LockError: if it can't be locked.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl is not there or can't be read.
    """
    filesystem = _open(host, wanted)
    with filesystem.lock(exclusive=False, timeout=host.timeout):
        _plan(filesystem, host, wanted)
    return _cpus(host, wanted.resource, wanted.cache_id)


def create(host: Host, wanted: Wanted) -> Lock:
    """Lock ways that no group has; if that fails, everything is as it was.

    The order is safe at each step: first the group goes into setup, where it has no ways; then others make way, all of
    them by having less; then the ways are locked. A process that is killed on the way leaves a group that is in
    ``pseudo-locksetup``, or not even in that mode yet; :func:`remove` removes it.

    :raises vmqos.pseudo_lock.exceptions.LockError: if it can't be locked.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl is not there, or the kernel refuses.
    """
    filesystem = _open(host, wanted)
    simulated = mount.find(host.path).simulated
    with filesystem.lock(exclusive=True, timeout=host.timeout):
        choice, before = _plan(filesystem, host, wanted)
        pseudo_lock.prepare(filesystem, wanted.group)
        changed: dict[str, CapacityBitmask] = {}
        try:
            for name, mask in choice.masks.items():
                changed[name] = before[name]
                groups.write_values(filesystem, name, wanted.resource, {wanted.cache_id: mask})
            pseudo_lock.lock(filesystem, wanted.group, wanted.resource, wanted.cache_id, choice.locked)
            return _verified(filesystem, wanted, choice, simulated)
        except BaseException as error:
            _take_back(filesystem, wanted, changed, error)
            raise


def remove(host: Host, name: str) -> Lock:
    """Remove one of our locks, and give its ways back to the default group.

    :returns: what it was.
    :raises vmqos.pseudo_lock.exceptions.NoSuchLock: if there is none of that name.
    :raises vmqos.pseudo_lock.exceptions.ForeignLock: if another program made it.
    :raises vmqos.pseudo_lock.exceptions.LockInUse: if a process has its device open.
    :raises vmqos.pseudo_lock.exceptions.WaysNotGivenBack: if it is removed, and the default group did not get its ways.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl is not there, or the kernel refuses.
    """
    filesystem = Filesystem(_writable(host).path)
    before = find(host, name)
    # It may take a while to look at every process; the lock on resctrl is not held meanwhile.
    in_use = region_users.users(before.device, host.proc) if before.ours and before.device else []
    if in_use:
        raise exceptions.LockInUse(device=before.device, users=", ".join(map(str, in_use)))
    with filesystem.lock(exclusive=True, timeout=host.timeout):
        found = groups.list_control_groups(filesystem)
        lock = named(name, read(filesystem, found))
        path = filesystem.path(lock.group)
        if not lock.ours:
            device = lock.device or pseudo_lock.device(lock.group)
            raise exceptions.ForeignLock(name=lock.name, path=path, device=device)
        groups.remove(filesystem, lock.group)
        try:
            _give_to_default(filesystem, host, lock, [group for group in found if group.name != lock.group])
        except resctrl_exceptions.ResctrlError as problem:
            raise exceptions.WaysNotGivenBack(lock=lock, problem=problem) from problem
        return lock


def _give_to_default(filesystem: Filesystem, host: Host, lock: Lock, left: Sequence[ControlGroup]) -> None:
    """Give the ways of a lock that is removed to the default group.

    :param left: the control groups that are left.
    """
    for resource, cache in info.read_capabilities(filesystem).caches.items():
        kept = CapacityBitmask.parse(host.reserved) if cache.level == 3 else CapacityBitmask()
        locked = info.read_pseudo_locked(filesystem, resource)
        grown = reset.grow_default(left, cache, kept, keep_ours=True, locked=locked)
        mine = {cache_id: mask for cache_id, mask in grown.items() if lock.cache_id in (None, cache_id)}
        if mine and lock.resource in ("", resource):
            groups.write_values(filesystem, DEFAULT_GROUP, resource, mine)


def _open(host: Host, wanted: Wanted) -> Filesystem:
    if not _NAME.fullmatch(wanted.name):
        raise exceptions.InvalidLockName(name=wanted.name)
    mounted = _writable(host)
    reason = "" if mounted.simulated else pseudo_lock.why_processor_cannot(host.proc)
    if reason:
        raise exceptions.ProcessorCannot(reason=reason)
    return Filesystem(mounted.path)


def _writable(host: Host) -> mount.Mount:
    mounted = mount.find(host.path)
    if not os.access(mounted.path, os.W_OK):
        raise exceptions.NotRoot(path=mounted.path)
    return mounted


def _plan(filesystem: Filesystem, host: Host, wanted: Wanted) -> tuple[Choice, dict[str, CapacityBitmask]]:
    """What to lock, and every group's mask of that cache as it is."""
    capabilities = info.read_capabilities(filesystem)
    found = groups.list_control_groups(filesystem)
    if any(group.name == wanted.group for group in found):
        raise exceptions.LockExists(name=wanted.name)
    cache = _cache(capabilities, wanted)
    for other in read(filesystem, found):
        if other.resource and _in_one_hierarchy(host, wanted, other):
            raise exceptions.AnotherRegion(cache=wanted.cache, other=f"{other.name} on {other.cache}")
    masks = {group.name: group.masks(cache.name).get(wanted.cache_id) for group in found}
    before = {name: mask for name, mask in masks.items() if mask is not None}
    way = _way_size(filesystem, before, wanted)
    ways = max(-(-wanted.size // way), cache.min_cbm_bits, 1)
    if ways * way > pseudo_lock.MOST_BYTES:
        raise exceptions.RegionTooLarge(
            size=wanted.size, way_size=way, real=ways * way, allowed=pseudo_lock.MOST_BYTES // way * way
        )
    holders = _holders(filesystem, host, cache, wanted.cache_id, before)
    choice = choose(cache, holders, ways, host.floor)
    if choice is None:
        possible = min(most(cache, holders, host.floor), pseudo_lock.MOST_BYTES // way)
        raise exceptions.NoWaysToLock(
            ways=ways, possible=possible, cache=wanted.cache, size=wanted.size, way_size=way, floor=host.floor
        )
    return choice, before


def _cache(capabilities: Capabilities, wanted: Wanted) -> CacheResource:
    if any(name.endswith(("CODE", "DATA")) for name in capabilities.caches):
        reason = (
            "resctrl is mounted with CDP, with which the kernel locks nothing (mount it without, with no group left)"
        )
        raise exceptions.ProcessorCannot(reason=reason)
    cache = capabilities.caches.get(wanted.resource)
    if cache is None or wanted.cache_id not in cache.cache_ids:
        known = [f"{name}:{cache_id}" for name, one in capabilities.caches.items() for cache_id in one.cache_ids]
        raise exceptions.NoSuchLockableCache(wanted=wanted.cache, known=", ".join(known) or "none")
    return cache


def _way_size(filesystem: Filesystem, masks: Mapping[str, CapacityBitmask], wanted: Wanted) -> int:
    """The bytes of one way, as the kernel reckons a region's size (``rdtgroup_cbm_to_size``)."""
    size = pseudo_lock.read_sizes(filesystem, DEFAULT_GROUP)[wanted.resource][wanted.cache_id]
    return max(1, size // max(1, masks[DEFAULT_GROUP].count))


def _holders(
    filesystem: Filesystem, host: Host, cache: CacheResource, cache_id: int, masks: Mapping[str, CapacityBitmask]
) -> Holders:
    ours = {name: mask for name, mask in masks.items() if owner_of(name) in (Owner.VM, Owner.CLASS)}
    others = info.read_pseudo_locked(filesystem, cache.name).get(cache_id, CapacityBitmask())
    if cache.level == 3:
        others |= CapacityBitmask.parse(host.reserved) & cache.cbm_mask
    for name, mask in masks.items():
        if name != DEFAULT_GROUP and name not in ours:
            others |= mask
    return Holders(masks[DEFAULT_GROUP], ours, others)


def _verified(filesystem: Filesystem, wanted: Wanted, choice: Choice, simulated: bool) -> Lock:
    """The lock as it is now.

    :raises vmqos.pseudo_lock.exceptions.NotLocked: if it is not what it should be.
    """
    lock = named(wanted.name, read(filesystem, groups.list_control_groups(filesystem)))
    problem = ""
    if lock.mode != pseudo_lock.LOCKED:
        problem = f"the mode of {wanted.group} is {lock.mode}"
    elif (lock.cache, lock.mask) != (wanted.cache, choice.locked):
        problem = f"it locked the ways {lock.mask} of {lock.cache}, not {choice.locked} of {wanted.cache}"
    elif lock.size < wanted.size:
        problem = f"its size is {lock.size} bytes"
    elif not simulated and not lock.device:
        problem = f"there is no device {pseudo_lock.device(wanted.group)} (is /dev a devtmpfs?)"
    if problem:
        raise exceptions.NotLocked(problem=problem)
    return lock


def _take_back(
    filesystem: Filesystem, wanted: Wanted, changed: Mapping[str, CapacityBitmask], error: BaseException
) -> None:
    """Undo what was done; the group goes first, for its ways may be locked."""
    try:
        groups.remove(filesystem, wanted.group)
        for name, mask in reversed(list(changed.items())):
            groups.write_values(filesystem, name, wanted.resource, {wanted.cache_id: mask})
    except resctrl_exceptions.ResctrlError as problem:
        raise exceptions.NotTakenBack(error=error, problem=problem, name=wanted.name) from error


def _in_one_hierarchy(host: Host, wanted: Wanted, other: Lock) -> bool:
    """Whether a CPU has both caches (``rdtgroup_pseudo_locked_in_hierarchy``)."""
    if (other.resource, other.cache_id) == (wanted.resource, wanted.cache_id):
        return True
    if other.cache_id is None:
        return False
    mine, theirs = (_cpus(host, *one) for one in ((wanted.resource, wanted.cache_id), (other.resource, other.cache_id)))
    return bool(mine & theirs)


def _cpus(host: Host, resource: str, cache_id: int) -> frozenset[int]:
    found = topology.read_caches(int(resource[1]), host.sysfs).get(cache_id)
    return found.cpus if found else frozenset()
