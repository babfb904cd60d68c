# SPDX-License-Identifier: Apache-2.0
"""What the planner looks at: the machine, the groups' ways and the operator's policy, as plain integers by cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from vmqos.allocation import caches
from vmqos.allocation.cache_ways import CacheWays, union
from vmqos.allocation.model import Group, Layout, Policy
from vmqos.group_names import DEFAULT_GROUP, Owner
from vmqos.resctrl.capabilities import CacheResource, Capabilities


@dataclass(frozen=True, slots=True)
class PlannerInput:
    """The groups and caches before the plan.

    :ivar capabilities: what resctrl can do here.
    :ivar policy: the operator's choices.
    :ivar groups: every group by name, in the order of names.
    :ivar masks: each group's ways by cache, by its name; a cache that is missing counts as no way.
    :ivar cache_ways: what each cache has to give, by cache (:mod:`vmqos.allocation.caches`); none of L3 where it
        can't be partitioned, none of L2 where it can't or where no group and no request has to do with it.
    :ivar names: the groups' names by their owner.
    :ivar granted: how many ways earlier plans granted, by group and cache; what is missing is not known.
    """

    capabilities: Capabilities
    policy: Policy
    groups: Mapping[str, Group]
    masks: Mapping[str, Mapping[int, int]]
    cache_ways: Mapping[int, CacheWays]
    names: Mapping[Owner, tuple[str, ...]]
    granted: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def fewest(self, level: int) -> int:
        """The fewest ways that a promise can have on the caches of a level."""
        resource = self.capabilities.l3 if level == 3 else self.capabilities.l2
        return max(1, resource.min_cbm_bits) if resource is not None else 1

    def floor(self, cache: int) -> int:
        """How many ways the default group keeps on a cache (rule 2)."""
        return max(self.policy.default_ways_min, self.cache_ways[cache].fewest)

    def reserved(self, cache: int) -> int:
        """The ways of a cache that are to be left alone."""
        return self.policy.reserved_ways.bits if caches.level(cache) == 3 else 0

    @property
    def reserve_is_used(self) -> bool:
        """Whether the default group has ways that are to be left alone."""
        return any(mask & self.reserved(cache) for cache, mask in self.masks[DEFAULT_GROUP].items())

    def named(self, *owners: Owner) -> tuple[str, ...]:
        """The names of the groups that belong to these, in order."""
        return tuple(sorted(name for owner in owners for name in self.names.get(owner, ())))

    def is_class(self, name: str) -> bool:
        """Whether the group is there, and is a class."""
        return name in self.names.get(Owner.CLASS, ())

    def ways(self, names: Iterable[str], cache: int) -> int:
        """The ways that any of these groups has on a cache."""
        return union(self.masks[name].get(cache, 0) for name in names if name in self.masks)

    def foreign(self, cache: int) -> int:
        """The ways that groups of others have on a cache."""
        return self.ways(self.named(Owner.FOREIGN), cache)

    def foreigners(self, cache: int, ways: int) -> Iterator[str]:
        """The names of the groups of others that have any of these ways on a cache."""
        return (name for name in self.named(Owner.FOREIGN) if self.masks[name].get(cache, 0) & ways)


def read_input(
    capabilities: Capabilities,
    l3: CacheResource | None,
    layout: Layout,
    policy: Policy,
    l2: CacheResource | None = None,
    granted: Mapping[str, Mapping[int, int]] | None = None,
) -> PlannerInput:
    """Turn what the planner is given into integers by cache.

    :param l3: the L3 as one resource, where it can be partitioned.
    :param l2: likewise, where a group or a request has to do with it.
    :param granted: how many ways earlier plans granted, by group and cache, as far as that is known.
    """
    groups = {group.name: group for group in sorted(layout.groups, key=lambda group: group.name)}
    names = {owner: tuple(name for name in groups if groups[name].owner is owner) for owner in Owner}
    resources = {cache: l3 for cache in l3.cache_ids} if l3 is not None else {}
    resources |= {caches.l2(cache): l2 for cache in l2.cache_ids} if l2 is not None else {}
    masks = {
        name: {cache: mask.bits for cache, mask in group.masks.items() if cache in resources}
        for name, group in groups.items()
    }
    masks.setdefault(DEFAULT_GROUP, {})
    foreign = [masks[name] for name in names[Owner.FOREIGN]]
    inputs = PlannerInput(capabilities, policy, groups, masks, {}, names, granted or {})
    cache_ways = {
        cache: _cache_ways(inputs, cache, resource, union(of_group.get(cache, 0) for of_group in foreign))
        for cache, resource in resources.items()
    }
    return replace(inputs, cache_ways=cache_ways)


def _cache_ways(inputs: PlannerInput, cache: int, resource: CacheResource, taken: int) -> CacheWays:
    """What one cache has to give.

    :param taken: the ways that groups of others have.
    """
    every, reserved = resource.cbm_mask.bits, inputs.reserved(cache)
    shareable = resource.filled_by_devices(caches.id_of(cache)).bits & every
    clean = every & ~taken & ~reserved
    exclusive = clean if inputs.policy.use_shareable_ways else clean & ~shareable
    company = inputs.masks[DEFAULT_GROUP].get(cache, 0) & taken & ~reserved
    fewest = max(1, resource.min_cbm_bits)
    return CacheWays(every, clean | company, company, exclusive, shareable, fewest, resource.sparse_masks)
