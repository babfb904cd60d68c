# SPDX-License-Identifier: Apache-2.0
"""One look at every counter of every VM."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, cast

from vmqos.resctrl import exceptions, groups, info, monitoring, mount
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import Capabilities
from vmqos.resctrl.filesystem import Filesystem, join
from vmqos.resctrl.monitoring import Value
from vmqos.resctrl.mount import Mount
from vmqos.telemetry import descriptors
from vmqos.telemetry.model import Columns, GroupReading, HostReading, Missing, PolicyName, Snapshot, VmReading, without
from vmqos.telemetry.sweep import carried, reading_cpus, ways
from vmqos.telemetry.sweep.carried import Carried
from vmqos.telemetry.sweep.controls import Controls
from vmqos.telemetry.sweep.counts import Counts, read_all
from vmqos.telemetry.sweep.group_reader import GroupReader
from vmqos.telemetry.sweep.groups import Listing, Place, list_groups
from vmqos.telemetry.sweep.lazy import LazyMapping
from vmqos.telemetry.sweep.shape import Parts, Shape
from vmqos.telemetry.sweep.ways import Granted, Held

LOCK_PATIENCE = 1.0
"""Seconds to wait for the lock on resctrl. A listing without it may miss a VM whose group is on the move."""

_HOST = ""
_HOST_NUMBER = 0
"""The default group is the first to be read."""
_GROUP = "group "
"""What the key of a control group that is no VM's begins with."""
_IN_DEFAULT_GROUP = f"{groups.MON_GROUPS}/"
"""What the directory of a monitoring group of the default group begins with."""
_REST = " rest"
"""What the key of a VM's second group has behind the VM's UUID."""


class Sweeper:
    """Reads the counters of all VMs and of the host; for one thread at a time.

    Each VM is found by its group's name, in one listing of the groups a sweep. The lock on resctrl is held, shared, for
    that listing only: counters need none.

    :param root: the mount point of resctrl or of a simulator; ``None``: wherever the kernel's own is mounted.
    :param keep_open: whether the counters' files stay open between sweeps, as far as this process may have so many:
        three times cheaper, and the way for a caller that sweeps often. Open files keep ``umount`` from unmounting
        resctrl; ``umount -l`` completes at the next sweep or :meth:`close`, which finds another filesystem there.
    :param nodes: whether sub-NUMA nodes are read one by one, too.
    :param control_groups: whether the control groups that are no VM's are read, too.
    :param give_way: called before the turn of some groups (:data:`vmqos.telemetry.sweep.counts.TURN`): it waits while
        something more urgent is to be done on resctrl.
    :param most_open: how many files may stay open; ``None``: as many as this process may have.
    """

    def __init__(
        self,
        root: str | None = None,
        keep_open: bool = True,
        *,
        nodes: bool = False,
        control_groups: bool = False,
        give_way: Callable[[], None] | None = None,
        most_open: int | None = None,
    ) -> None:
        self._root = root
        self._keep_open = keep_open
        self._most_open = most_open
        self._nodes = nodes
        self._control_groups = control_groups
        self._give_way = give_way
        self._mounted: _Mounted | None = None

    def __enter__(self) -> Sweeper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def sweep(self) -> Snapshot:
        """Read everything once.

        :raises vmqos.resctrl.exceptions.MountError: if resctrl is not mounted (any more), with what mends it.
        :raises vmqos.resctrl.exceptions.Unreadable: if the caller may not look into it.
        :raises vmqos.resctrl.exceptions.ResctrlError: if something else of resctrl can't be read.
        """
        if self._mounted is not None and _identity(self._mounted.fs.root) != self._mounted.identity:
            self.close()
        if self._mounted is None:
            found = mount.find(self._root, writable=False)
            identity = _identity(found.path)
            if identity is None:
                raise exceptions.Vanished(path=found.path)
            self._mounted = _Mounted(
                found,
                identity,
                self._budget(),
                nodes=self._nodes,
                control_groups=self._control_groups,
                give_way=self._give_way,
            )
        try:
            return self._mounted.sweep()
        except exceptions.Vanished:
            self.close()
            mount.find(self._root, writable=False)
            raise

    def close(self) -> None:
        """Close every file. The next :meth:`sweep` begins anew."""
        if self._mounted is not None:
            self._mounted.close()
            self._mounted = None

    def _budget(self) -> int | None:
        """How many files may stay open; ``None`` where none is to."""
        if not self._keep_open:
            return None
        possible = descriptors.raise_limit()
        return possible if self._most_open is None else min(possible, self._most_open)

    def let_go_if_unmounted(self) -> None:
        """Close every file if resctrl is no longer mounted where it was: the next sweep may be far off."""
        if self._mounted is not None and _identity(self._mounted.fs.root) != self._mounted.identity:
            self.close()


_NO_GRANT = Granted()


@dataclass(frozen=True, slots=True)
class _Target:
    """A group to read: a VM's, with all that stays the same from sweep to sweep, a VM's second one, or no VM's.

    :ivar key: what its reader is known by: the VM's UUID, with :data:`_REST` for the second one; empty for the default
        group, and the name behind :data:`_GROUP` for another control group.
    :ivar rest: the number of the VM's second group; ``None`` where it has none.
    """

    key: str
    place: Place
    granted: Granted = _NO_GRANT
    rest: int | None = None


_THE_HOST = _Target(_HOST, Place("", "", None))


@dataclass(frozen=True, slots=True)
class _Look:
    """What one sweep read of some groups; what belongs to one group is picked out when the caller asks for it.

    :ivar again: those that were gone when their turn came, as they were found a moment later, by their numbers here.
    :ivar carried: what earlier hardware counters had counted for some groups, by their numbers here.
    """

    targets: Sequence[_Target]
    readers: Sequence[GroupReader]
    counts: Counts
    shape: Shape
    again: Mapping[int, _Look]
    carried: Mapping[int, Carried] = field(default_factory=dict)

    def values(self, number: int) -> list[Value]:
        """The values of one group; one that is gone has none, however many of its counters were read before."""
        if number in self.again:
            return self.again[number].values(0)
        return [Missing.VANISHED] * self.shape.count if self.readers[number].vanished else self.counts.values(number)

    def moments(self, number: int) -> Sequence[float]:
        """When each domain of one group was read."""
        return self.again[number].moments(0) if number in self.again else self.counts.moments(number)

    def generation(self, number: int) -> str:
        """Which group it was; empty for one that is gone."""
        if number in self.again:
            return self.again[number].generation(0)
        reader = self.readers[number]
        return "" if reader.vanished else reader.generation

    def since(self, number: int) -> float | None:
        """Since when the packages' counters of one group are told, in seconds since 1970; ``None`` where none is."""
        return self.again[number].since(0) if number in self.again else self.readers[number].beginning.since

    def begin(self) -> None:
        """Note what packages had counted for each VM's RMID before its group, where it is read for the first time."""
        for number, target in enumerate(self.targets):
            if target.key == _HOST:
                continue
            if number in self.again:
                self.again[number].begin()
            else:
                self.readers[number].beginning.see(self.values(number), self.shape.of_packages)

    def own_values(self, number: int) -> Sequence[Value]:
        """The values of one VM's group, the packages' as if they had begun at 0 with it, with what was carried."""
        if number in self.again:
            return self.again[number].own_values(0)
        values = self.readers[number].beginning.after(self.values(number))
        return carried.add(values, self.carried[number]) if number in self.carried else values

    def host_parts(self) -> Parts:
        """The readings of the default group, with what was carried to it."""
        return self.shape.decode(carried.add(self.values(_HOST_NUMBER), self.carried.get(_HOST_NUMBER, {})))

    def parts(self, number: int) -> Parts:
        """The readings of one group."""
        return self.shape.decode(self.values(number))

    def group(self, name: str, numbers: Sequence[int]) -> GroupReading:
        """What a control group counts beside the VMs in it.

        :param numbers: its own, and those of the VMs.
        """
        number, *inside = numbers
        if self.counts.are_numbers:
            columns = [cast(Sequence[int], self.counts.column(at)) for at in range(self.shape.count)]
            left = [max(column[number] - sum(map(column.__getitem__, inside)), 0) for column in columns]
            return self._group_reading(number, left)
        values = without(self.values(number), [self._added_to_its_group(one) for one in inside])
        return self._group_reading(number, values)

    def _added_to_its_group(self, number: int) -> list[Value]:
        """What the kernel adds to a control group's counters for a VM in it.

        That is nothing where the VM has no hardware counter, or where a package has not heard of it.
        """
        values: list[Value] = [0 if value is Missing.UNASSIGNED else value for value in self.values(number)]
        for at in self.shape.of_packages:
            if values[at] is Missing.UNAVAILABLE:
                values[at] = 0
        return values

    def _group_reading(self, number: int, values: Sequence[Value]) -> GroupReading:
        caches, _, _, packages = self.shape.decode(values)
        return GroupReading(self.generation(number), caches, packages)

    def vm(self, uuid: str, number: int) -> VmReading:
        """One VM's reading: the sum of both its groups where it has two."""
        target = self.targets[number]
        values, moments, generation = self.own_values(number), self.moments(number), self.generation(number)
        since = self.since(number)
        if target.rest is not None:
            values = self.shape.add(values, self.own_values(target.rest))
            since = max(filter(None, (since, self.since(target.rest))), default=None)
            generation = f"{generation}+{self.generation(target.rest)}"
        caches, totals, nodes, packages = self.shape.decode(values)
        return VmReading(
            uuid,
            target.place.control,
            target.place.policy,
            target.granted.ways,
            target.granted.allocated_bytes,
            generation,
            moments[0] if moments else self.counts.began,
            caches,
            totals,
            nodes,
            packages,
            {found.cache: at for found, at in zip(self.shape.domains, moments, strict=True) if found.cache is not None},
            target.granted.parts,
            target.granted.l2_ways,
            target.granted.limits,
            since,
        )


@dataclass(frozen=True, slots=True)
class _Before:
    """What the sweep before read."""

    readers: Sequence[GroupReader]
    counts: Counts
    shape: Shape


class _Mounted:
    """One mount of resctrl."""

    def __init__(
        self,
        found: Mount,
        identity: str,
        budget: int | None,
        *,
        nodes: bool,
        control_groups: bool,
        give_way: Callable[[], None] | None,
    ) -> None:
        self.fs = Filesystem(found.path)
        self.identity = identity
        self._simulated = found.simulated
        self._nodes = nodes
        self._control_groups = control_groups
        self._give_way = give_way
        self._budget = budget or 0
        self._controls = Controls(self.fs, budget is not None)
        self._readers: dict[str, GroupReader] = {}
        self._steady: Sequence[GroupReader] | None = None
        self._domains: frozenset[tuple[str, int]] | None = None
        self._divided: frozenset[str] = frozenset()
        self._domains_id = ""
        self._shape = Shape(())
        self._cpus: Mapping[int, int] = {}
        self._capabilities = Capabilities()
        self._listing = Listing()
        self._held: Mapping[str, Held] = {}
        self._targets: Sequence[_Target] = (_THE_HOST,)
        self._numbers: Mapping[str, int] = {}
        self._controls_at: Mapping[str, Sequence[int]] = {}
        self._before: _Before | None = None
        self._carries = False

    def close(self) -> None:
        self._controls.close()
        self._drop(set(self._readers))

    def sweep(self) -> Snapshot:
        began, wall = time.monotonic(), time.time()
        with ExitStack() as locked:
            with suppress(exceptions.LockTimeout):
                locked.enter_context(self.fs.lock(exclusive=False, timeout=LOCK_PATIENCE))
            self._look_at_machine()
            listing = list_groups(self.fs, self._listing)
            held = self._controls.read(listing.names.keys())
        if listing is not self._listing or held is not self._held:
            self._aim(listing, held)
        look = self._read()
        vms = LazyMapping(self._numbers, look.vm)
        return Snapshot(began, wall, vms, self._host(look), time.monotonic() - began, self._columns(look))

    def _columns(self, look: _Look) -> Columns | None:
        counts, shape = look.counts, self._shape
        if look.readers is not self._steady or not counts.are_numbers or look.carried or shape.of_packages:
            return None
        # VMs stand behind the host, and a VM's second group beside its first.
        vms = slice(1, 1 + len(self._numbers))
        if any(target.rest is not None for target in self._targets[vms]):
            return None
        caches = {
            cache: (*(counts.column(at)[vms] for at in positions), counts.moments_of(cache)[vms])
            for cache, positions in shape.of_caches.items()
        }
        return Columns(tuple(self._numbers), self._steady, cast(Any, caches))

    def _look_at_machine(self) -> None:
        """Find out what is counted, again whenever caches or parts of them come or go: their last CPU goes offline."""
        domains = _domains(self.fs, self._divided)
        if domains != self._domains:
            self._drop(set(self._readers))
            domains = _domains(self.fs)
            self._capabilities = info.read_capabilities(self.fs)
            self._shape = Shape(monitoring.read_counters(self.fs) if domains else (), self._nodes)
            self._cpus = {} if self._simulated else reading_cpus.by_cache()
            self._domains = domains
            self._divided = frozenset(name.partition("/")[0] for name, _ in domains if "/" in name)
            self._domains_id = "-".join(f"{inode:x}" for _, inode in sorted(domains))

    def _aim(self, listing: Listing, held: Mapping[str, Held]) -> None:
        """Find out what each VM was promised, and forget those that are gone."""
        grants: dict[tuple[str, PolicyName | None], Granted] = {}
        throttle = self._capabilities.memory_bandwidth
        targets, numbers = [_THE_HOST], dict[str, int]()
        for uuid, place in listing.vms.items():
            key = place.control, place.policy
            if key not in grants:
                # A limit of the default group's is no VM's in particular.
                unit = throttle.unit if throttle is not None and place.control else None
                grants[key] = ways.granted(place.policy, held[place.control], held[_HOST], unit)
            numbers[uuid] = number = len(targets)
            targets.append(_Target(uuid, place, grants[key], None if place.rest is None else number + 1))
            if place.rest is not None:
                targets.append(_Target(uuid + _REST, Place("", place.rest, None)))
        controls = self._find_controls(listing, targets) if self._control_groups else {}
        self._drop(self._readers.keys() - {target.key for target in targets})
        self._listing, self._held, self._targets, self._numbers = listing, held, targets, numbers
        self._controls_at = controls

    def _find_controls(self, listing: Listing, targets: list[_Target]) -> dict[str, tuple[int, ...]]:
        """The numbers of each control group that is no VM's, which becomes a target, and of the VMs monitored in it."""
        at = {target.place.directory: number for number, target in enumerate(targets)}
        found = {}
        for name, inside in listing.names.items():
            if name and name in at:
                continue
            number = at.get(name, len(targets))
            if name:
                targets.append(_Target(_GROUP + name, Place(name, name, None)))
            below = (at.get(join(name, groups.MON_GROUPS, one)) for one in inside)
            found[name] = (number, *(one for one in below if one is not None))
        return found

    def _read(self) -> _Look:
        """Read every group, the host's first; a group that vanished meanwhile is read once more, as it is by then."""
        targets, readers = self._targets, self._steady
        if readers is None:
            readers = [self._reader(target.key, target.place.directory) for target in targets]
            self._steady = readers if all(reader.kept for reader in readers) else None
        counts = read_all(readers, self._shape.domains, self._cpus, self._give_way)
        again = {number: self._read_again(targets[number]) for number, reader in enumerate(readers) if reader.vanished}
        look = _Look(targets, readers, counts, self._shape, again, self._carry(targets, readers, counts))
        if self._shape.of_packages:
            look.begin()
        return look

    def _carry(
        self, targets: Sequence[_Target], readers: Sequence[GroupReader], counts: Counts
    ) -> Mapping[int, Carried]:
        """What earlier hardware counters had counted for each group; nothing unless VMs take turns to have some.

        The kernel tells of the default group what it and the VMs in it have counters for. So what is carried to such a
        VM is carried to that group, too, or its sum would fall whenever one of them loses its counters.
        """
        before, self._before = self._before, _Before(readers, counts, self._shape)
        if not counts.some_unassigned and not (self._carries and any(reader.carried for reader in readers)):
            return {}
        self._carries = True
        traffic = self._shape.of_traffic
        if before is None:
            # An earlier sweeper told what it had carried, which is not known here. So each begins at 0.
            for number, reader in enumerate(readers):
                reader.carried = carried.begin(counts.values(number), traffic)
        elif before.shape is self._shape:
            numbers = {id(reader): number for number, reader in enumerate(before.readers)}
            host = readers[_HOST_NUMBER]
            for number, (target, reader) in enumerate(zip(targets, readers, strict=True)):
                earlier = numbers.get(id(reader))
                if target.key == _HOST or earlier is None or reader.vanished:
                    continue
                then, reader.carried = (
                    reader.carried,
                    carried.carry(reader.carried, before.counts.values(earlier), counts.values(number), traffic),
                )
                if target.place.directory.startswith(_IN_DEFAULT_GROUP) and reader.carried is not then:
                    host.carried = carried.more(host.carried, then, reader.carried)
        return {number: reader.carried for number, reader in enumerate(readers) if reader.carried}

    def _read_again(self, target: _Target) -> _Look:
        self._drop({target.key})
        reader = self._reader(target.key, target.place.directory)
        return _Look([target], [reader], read_all([reader], self._shape.domains, self._cpus), self._shape, {})

    def _reader(self, key: str, directory: str) -> GroupReader:
        """The reader of a group: last sweep's, for as long as it is the same group."""
        known = self._readers.get(key)
        if known is not None and known.vanished:
            self._drop({key})
            known = None
        if known is not None and known.kept and known.directory == directory:
            return known
        path = self.fs.path(directory)
        try:
            generation = f"{self.identity}.{os.stat(path).st_ino:x}.{self._domains_id}"
        except OSError:
            self._drop({key})
            return GroupReader(directory, path, "", self._shape.domains)
        if known is not None and known.generation == generation:
            known.move(directory, path)
            return known
        self._drop({key})
        reader = self._readers[key] = GroupReader(directory, path, generation, self._shape.domains)
        if self._shape.count <= self._budget and reader.keep():
            self._budget -= reader.kept
        return reader

    def _drop(self, keys: set[str]) -> None:
        self._steady = None
        for key in keys:
            reader = self._readers.pop(key, None)
            if reader is not None:
                self._budget += reader.kept
                reader.close()

    def _host(self, look: _Look) -> HostReading:
        capabilities, names = self._capabilities, self._listing.names
        caches, totals, _, packages = look.host_parts() if look.carried else look.parts(_HOST_NUMBER)
        every: dict[int, CapacityBitmask] = {}
        for resource in capabilities.caches.values():
            if resource.level == 3:
                every.update(dict.fromkeys(resource.cache_ids, resource.cbm_mask))
        count = {cache: mask.count for cache, mask in every.items()}
        return HostReading(
            caches=caches,
            totals=totals,
            packages=packages,
            ways=count,
            ways_free=ways.free(every, self._held),
            cache_bytes=ways.cache_bytes(count, self._held[_HOST]),
            closids=capabilities.num_closids,
            closids_used=len(names),
            rmids=capabilities.monitoring.num_rmids if capabilities.monitoring else 0,
            rmids_used=len(names) + sum(map(len, names.values())),
            events=self._shape.events,
            groups=LazyMapping(self._controls_at, look.group),
            bandwidth_unit=capabilities.memory_bandwidth.unit.told_in if capabilities.memory_bandwidth else None,
        )


def _domains(fs: Filesystem, divided: frozenset[str] | None = None) -> frozenset[tuple[str, int]]:
    """What there is to count, by name and inode number; nothing where nothing is counted.

    A cache that goes offline takes its counters' beginnings along: when it is back, in directories made anew, a group's
    counter may show what others have moved before. So does a sub-NUMA node, whose directory comes and goes alone
    (``mon_rmdir_one_subdir`` in fs/resctrl/rdtgroup.c).

    :param divided: the directories in which to look for nodes: a cache that has none has none later; ``None``: all.
    """
    try:
        names = fs.listdir(monitoring.MON_DATA)
    except exceptions.Vanished:
        return frozenset()
    for name in [one for one in names if (monitoring.is_cache(one) if divided is None else one in divided)]:
        with suppress(exceptions.Vanished):
            nodes = monitoring.nodes(fs.listdir(monitoring.MON_DATA, name))
            names = [*names, *(join(name, node) for node in nodes)]
    found = set()
    for name in names:
        with suppress(OSError):
            found.add((name, os.stat(fs.path(monitoring.MON_DATA, name)).st_ino))
    return frozenset(found)


def _identity(root: str) -> str | None:
    """What tells one mount from the next one on the same directory.

    Device numbers are used again. Linux 6.6 and later give each mount of resctrl a random ``f_fsid``; before, the
    root's time of change has to do.
    """
    try:
        status, filesystem = os.stat(root), os.statvfs(root)
    except OSError:
        return None
    instance = filesystem.f_fsid or status.st_ctime_ns
    return f"{status.st_dev:x}.{status.st_ino:x}.{instance:x}"
