# SPDX-License-Identifier: Apache-2.0
"""The kernel's rules for control groups as a value in memory: what it refuses, and what a new group gets.

Read in ``fs/resctrl/rdtgroup.c`` and ``ctrlmondata.c``: ``rdtgroup_mkdir``, ``__init_one_rdt_domain``,
``cbm_ensure_valid``, ``parse_cbm``, ``rdtgroup_mode_write``; and ``domain_setup_ctrlval``.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

from vmqos.allocation import CreateGroup, Group, Layout, RemoveGroup, SetExclusive, Step, WriteMasks, owner_of
from vmqos.allocation.line import run, runs
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities


class Refused(Exception):
    """The kernel says no."""


class Kernel:
    """A machine with its control groups."""

    def __init__(self, capabilities: Capabilities) -> None:
        assert capabilities.l3 is not None
        self.capabilities = capabilities
        self.l3: CacheResource = capabilities.l3
        self.masks: dict[str, dict[int, int]] = {"": dict.fromkeys(self.l3.cache_ids, self.l3.cbm_mask.bits)}
        self.exclusive: set[str] = set()
        self.fresh = ""

    def copy(self) -> Kernel:
        """Another machine in the same state."""
        other = Kernel(self.capabilities)
        other.masks, other.exclusive, other.fresh = deepcopy(self.masks), set(self.exclusive), self.fresh
        return other

    def layout(self) -> Layout:
        """What a reader of resctrl sees."""
        return Layout(
            tuple(
                Group(name, owner_of(name), {cache: CapacityBitmask(mask) for cache, mask in masks.items()}, exclusive)
                for name, masks in self.masks.items()
                for exclusive in [name in self.exclusive]
            )
        )

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
            case WriteMasks(group, masks):
                self.write(group, {cache: mask.bits for cache, mask in masks.items()})
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
        for cache in self.l3.cache_ids:
            used = self.others(name, cache) | self.l3.shareable_bits.bits
            shared = self.others(name, cache, self.masks.keys() - self.exclusive) | self.l3.shareable_bits.bits
            given = shared | (self.l3.cbm_mask.bits & ~used)
            masks[cache] = run(*next(runs(given))) if given else 0
            if masks[cache].bit_count() < max(1, self.l3.min_cbm_bits):
                raise Refused(f"no space on L3:{cache}")
        self.masks[name] = masks

    def write(self, name: str, masks: dict[int, int]) -> None:
        """Write schemata: all of it or nothing."""
        if not masks:
            raise Refused("an empty write")
        for cache, mask in masks.items():
            self.l3.check(CapacityBitmask(mask))
            if not mask:
                raise Refused("vmqos writes no empty mask")
            if name in self.exclusive:
                if mask & (self.others(name, cache) | self.l3.shareable_bits.bits):
                    raise Refused(f"{name}: overlaps with other group")
            elif mask & self.others(name, cache, self.exclusive):
                raise Refused(f"{name}: overlaps with exclusive group")
        if name != self.fresh and all(self.masks[name][cache] == mask for cache, mask in masks.items()):
            raise Refused(f"{name}: a write that changes nothing")
        self.masks[name].update(masks)

    def set_mode(self, name: str, exclusive: bool) -> None:
        """Write mode."""
        if exclusive == (name in self.exclusive):
            raise Refused(f"{name}: a mode that changes nothing")
        if exclusive:
            if set(self.capabilities.caches) != {"L3"}:
                raise Refused(f"{name}: schemata overlaps in another resource")
            for cache, mask in self.masks[name].items():
                if mask & (self.others(name, cache) | self.l3.shareable_bits.bits):
                    raise Refused(f"{name}: schemata overlaps")
            self.exclusive.add(name)
        else:
            self.exclusive.discard(name)

    def come_online(self, cache: int) -> None:
        """A cache gets its first CPU again: whatever the groups had there, and were guarded by, they have all of it."""
        for masks in self.masks.values():
            masks[cache] = self.l3.cbm_mask.bits

    def rmdir(self, name: str) -> None:
        """Remove a group."""
        if name not in self.masks or not name.startswith("vmqos."):
            raise Refused(f"{name} is not ours to remove")
        del self.masks[name]
        self.exclusive.discard(name)
