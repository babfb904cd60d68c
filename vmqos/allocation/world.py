# SPDX-License-Identifier: Apache-2.0
"""What the planner looks at: the machine, the groups' ways and the operator's policy, as plain integers by cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vmqos.allocation.line import Line, union
from vmqos.allocation.model import DEFAULT_GROUP, Group, Layout, Owner, Policy
from vmqos.resctrl.capabilities import CacheResource, Capabilities


@dataclass(frozen=True, slots=True)
class World:
    """The world before the plan.

    :ivar capabilities: what resctrl can do here; its L3 can be partitioned.
    :ivar policy: the operator's choices.
    :ivar groups: every group by name, in the order of names.
    :ivar masks: each group's ways by cache id, by its name; a cache that is missing counts as no way.
    :ivar lines: what each cache has to give, by cache id.
    :ivar names: the groups' names by their owner.
    :ivar fewest: the fewest ways that a promise can have.
    """

    capabilities: Capabilities
    policy: Policy
    groups: Mapping[str, Group]
    masks: Mapping[str, Mapping[int, int]]
    lines: Mapping[int, Line]
    names: Mapping[Owner, tuple[str, ...]]
    fewest: int

    @property
    def floor(self) -> int:
        """How many ways the default group keeps on every cache (rule 2)."""
        return max(self.policy.default_ways_min, self.fewest)

    @property
    def reserve_is_used(self) -> bool:
        """Whether the default group has ways that are to be left alone."""
        reserved = self.policy.reserved_ways.bits
        return any(mask & reserved for mask in self.masks[DEFAULT_GROUP].values())

    def named(self, *owners: Owner) -> tuple[str, ...]:
        """The names of the groups that belong to these, in order."""
        return tuple(sorted(name for owner in owners for name in self.names.get(owner, ())))

    def ways(self, names: Iterable[str], cache: int) -> int:
        """The ways that any of these groups has on a cache."""
        return union(self.masks[name].get(cache, 0) for name in names if name in self.masks)

    def foreign(self, cache: int) -> int:
        """The ways that groups of others have on a cache."""
        return self.ways(self.named(Owner.FOREIGN), cache)

    def foreigners(self, cache: int, ways: int) -> Iterator[str]:
        """The names of the groups of others that have any of these ways on a cache."""
        return (name for name in self.named(Owner.FOREIGN) if self.masks[name].get(cache, 0) & ways)


def look(capabilities: Capabilities, l3: CacheResource, layout: Layout, policy: Policy) -> World:
    """Turn the planner's input into the world."""
    groups = {group.name: group for group in sorted(layout.groups, key=lambda group: group.name)}
    masks = {
        name: {cache: mask.bits for cache, mask in group.masks.items() if cache in l3.cache_ids}
        for name, group in groups.items()
    }
    masks.setdefault(DEFAULT_GROUP, {})
    every, shareable = l3.cbm_mask.bits, l3.shareable_bits.bits & l3.cbm_mask.bits
    fewest = max(1, l3.min_cbm_bits)
    lines = {}
    for cache in l3.cache_ids:
        taken = union(masks[name].get(cache, 0) for name, group in groups.items() if group.owner is Owner.FOREIGN)
        reserved = policy.reserved_ways.bits
        clean = every & ~taken & ~reserved
        exclusive = clean if policy.use_shareable_ways else clean & ~shareable
        company = masks[DEFAULT_GROUP].get(cache, 0) & taken & ~reserved
        lines[cache] = Line(every, clean | company, company, exclusive, shareable, fewest, l3.sparse_masks)
    names = {owner: tuple(name for name in groups if groups[name].owner is owner) for owner in Owner}
    return World(capabilities, policy, groups, masks, lines, names, fewest)
