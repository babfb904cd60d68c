# SPDX-License-Identifier: Apache-2.0
"""The kernel's rules for control groups as a value in memory: what it refuses, and what a new group gets.

Read in ``fs/resctrl/rdtgroup.c`` and ``ctrlmondata.c``: ``rdtgroup_mkdir``, ``__init_one_rdt_domain``,
``cbm_ensure_valid``, ``parse_cbm``, ``rdtgroup_mode_write``; and ``domain_setup_ctrlval``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy

from vmqos.allocation import (
    CreateGroup,
    Group,
    Layout,
    RemoveGroup,
    SetExclusive,
    Split,
    Step,
    WriteMasks,
    WriteThrottles,
    caches,
)
from vmqos.allocation.cache_ways import run, runs
from vmqos.allocation.masks.target import split
from vmqos.group_names import owner_of
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthUnit, CacheResource, Capabilities


class Refused(Exception):
    """The kernel says no."""


class Kernel:
    """A machine with its control groups."""

    def __init__(self, capabilities: Capabilities) -> None:
        assert capabilities.l3 is not None
        self.capabilities = capabilities
        self.l3: CacheResource = capabilities.l3
        self.resources = {cache: capabilities.l3 for cache in capabilities.l3.cache_ids}
        if capabilities.l2 is not None:
            self.resources |= {caches.l2(cache): capabilities.l2 for cache in capabilities.l2.cache_ids}
        every = {cache: resource.cbm_mask.bits for cache, resource in self.resources.items()}
        self.masks: dict[str, dict[int, int]] = {"": every}
        self.bandwidth = capabilities.bandwidths["MB"]
        self.throttles: dict[str, dict[int, int]] = {}
        self.splits: dict[str, dict[int, Split]] = {}
        self.exclusive: set[str] = set()
        self.fresh = ""

    def copy(self) -> Kernel:
        """Another machine in the same state."""
        other = Kernel(self.capabilities)
        other.masks, other.exclusive, other.fresh = deepcopy(self.masks), set(self.exclusive), self.fresh
        other.throttles, other.splits = deepcopy(self.throttles), deepcopy(self.splits)
        return other

    def layout(self) -> Layout:
        """What a reader of resctrl sees."""
        return Layout(
            tuple(
                Group(
                    name,
                    owner_of(name),
                    {cache: CapacityBitmask(mask) for cache, mask in masks.items()},
                    name in self.exclusive,
                    throttles=self.limits(name),
                    splits=self.parts(name),
                )
                for name, masks in self.masks.items()
            )
        )

    def parts(self, name: str) -> dict[int, Split]:
        """A group's ways for code and for data, where they are apart."""
        whole = {cache: split(mask) for cache, mask in self.masks[name].items() if self.is_split(cache)}
        known = self.splits.get(name, {})
        return {cache: known.get(cache, parts) for cache, parts in whole.items()}

    def is_split(self, cache: int) -> bool:
        """Whether code and data have masks of their own there."""
        return caches.level(cache) in self.capabilities.split_levels

    def limits(self, name: str) -> dict[int, int]:
        """A group's limits of bandwidth; a group that is made has none."""
        return dict.fromkeys(self.bandwidth.cache_ids, self.bandwidth.unit.unlimited) | self.throttles.get(name, {})

    def others(self, name: str, cache: int, among: Iterable[str] | None = None) -> int:
        """The ways that other groups have."""
        together = 0
        for other in self.masks if among is None else among:
            if other != name:
                together |= self.masks[other][cache]
        return together

    def apply(self, step: Step) -> None:
        """Carry out one step of a plan."""
        created = ""
        match step:
            case CreateGroup(group):
                self.mkdir(group)
                created = group
            case WriteMasks(group, masks, splits):
                if splits.keys() != {cache for cache in masks if self.is_split(cache)}:
                    raise Refused(f"{group}: with CDP all masks have parts, and without none")
                self.write(group, {cache: mask.bits for cache, mask in masks.items()}, splits)
            case WriteThrottles(group, throttles):
                self.throttle(group, dict(throttles))
            case SetExclusive(group, exclusive):
                self.set_mode(group, exclusive)
            case RemoveGroup(group):
                self.rmdir(group)
        self.fresh = created

    def mkdir(self, name: str) -> None:
        """Make a group."""
        if name in self.masks:
            raise Refused(f"{name} exists")
        if len(self.masks) >= self.capabilities.num_closids:
            raise Refused("out of CLOSIDs")
        masks = {}
        for cache, resource in self.resources.items():
            used = self.others(name, cache) | resource.shareable_bits.bits
            shared = self.others(name, cache, self.masks.keys() - self.exclusive) | resource.shareable_bits.bits
            given = shared | (resource.cbm_mask.bits & ~used)
            masks[cache] = run(*next(runs(given))) if given else 0
            if masks[cache].bit_count() < max(1, resource.min_cbm_bits):
                raise Refused(f"no space on {resource.name}:{cache}")
        self.masks[name] = masks

    def write(self, name: str, masks: dict[int, int], splits: Mapping[int, Split] | None = None) -> None:
        """Write schemata: all of it or nothing."""
        parts = dict(splits or {})
        if not parts:
            parts = {cache: split(mask) for cache, mask in masks.items() if self.is_split(cache)}
        for cache, both in parts.items():
            self.resources[cache].check(both.code)
            self.resources[cache].check(both.data)
            if (both.code | both.data).bits != masks[cache] or not (both.code and both.data):
                raise Refused(f"{name}: {both} are not the parts of {masks[cache]:x}")
        if not masks:
            raise Refused("an empty write")
        for cache, mask in masks.items():
            self.resources[cache].check(CapacityBitmask(mask))
            if not mask:
                raise Refused("vmqos writes no empty mask")
            if name in self.exclusive:
                if mask & (self.others(name, cache) | self.resources[cache].shareable_bits.bits):
                    raise Refused(f"{name}: overlaps with other group")
            elif mask & self.others(name, cache, self.exclusive):
                raise Refused(f"{name}: overlaps with exclusive group")
        same = parts.items() <= self.parts(name).items()
        if name != self.fresh and same and all(self.masks[name][cache] == mask for cache, mask in masks.items()):
            raise Refused(f"{name}: a write that changes nothing")
        self.masks[name].update(masks)
        self.splits.setdefault(name, {}).update(parts)

    def throttle(self, name: str, throttles: dict[int, int]) -> None:
        """Write the line MB: all of it or nothing."""
        if not throttles or name not in self.masks:
            raise Refused(f"{name}: nothing to write, or no such group")
        unit, now = self.bandwidth.unit, self.limits(name)
        for cache, value in throttles.items():
            if cache not in self.bandwidth.cache_ids:
                raise Refused(f"no cache {cache}")
            if unit is not BandwidthUnit.MBPS and not self.bandwidth.min_bandwidth <= value <= unit.unlimited:
                raise Refused(f"{value} is out of range")
            if unit is not BandwidthUnit.MBPS and value % self.bandwidth.bandwidth_gran:
                raise Refused(f"the kernel would round {value} up, and nobody could read it back")
        if throttles.items() <= now.items():
            raise Refused(f"{name}: a write that changes nothing")
        self.throttles.setdefault(name, {}).update(throttles)

    def set_mode(self, name: str, exclusive: bool) -> None:
        """Write mode."""
        if exclusive == (name in self.exclusive):
            raise Refused(f"{name}: a mode that changes nothing")
        if exclusive:
            for cache, mask in self.masks[name].items():
                if mask & (self.others(name, cache) | self.resources[cache].shareable_bits.bits):
                    raise Refused(f"{name}: schemata overlaps")
            self.exclusive.add(name)
        else:
            self.exclusive.discard(name)

    def come_online(self, cache: int) -> None:
        """A cache gets its first CPU again: whatever the groups had there, and were guarded by, they have all of it."""
        for masks in self.masks.values():
            masks[cache] = self.resources[cache].cbm_mask.bits
        for parts in self.splits.values():
            parts.pop(cache, None)

    def rmdir(self, name: str) -> None:
        """Remove a group."""
        if name not in self.masks or not name.startswith("vmqos."):
            raise Refused(f"{name} is not ours to remove")
        del self.masks[name]
        self.throttles.pop(name, None)
        self.splits.pop(name, None)
        self.exclusive.discard(name)
