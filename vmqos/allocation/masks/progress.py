# SPDX-License-Identifier: Apache-2.0
"""How far a plan's steps have come: the masks as they are between two steps, and which write is safe next."""

from __future__ import annotations

from collections.abc import Iterable

from vmqos.allocation.cache_ways import union
from vmqos.allocation.masks.target import Target
from vmqos.allocation.planner_input import PlannerInput
from vmqos.group_names import DEFAULT_GROUP, Owner


class Progress:
    """The groups that the plan may write, on their way to the target.

    :ivar masks: each group's ways now by cache, by its name; groups that do not exist yet are missing.
    :ivar missing: the masks that each group is to have and does not have yet, by cache, by its name.
    :ivar guarded: the groups in mode ``exclusive``.
    :ivar order: the groups' names in the order in which they are looked at: those that share, VMs, new VMs, new
        classes; the VMs and the classes each in order of arrival.
    """

    def __init__(self, inputs: PlannerInput, target: Target) -> None:
        self.inputs = inputs
        self.target = target
        self.masks = {name: dict(inputs.masks[name]) for name in target.masks if name in inputs.masks}
        self.missing = {name: self._still_missing(name) for name in target.masks}
        self.guarded = {name for name in self.masks if name in inputs.groups and inputs.groups[name].exclusive}
        owners = {name for name, _ in target.own}
        self._turn = {name: (1 if name in owners else 2) if name in target.created else 0 for name in target.masks}
        self.order = tuple(sorted(target.masks, key=lambda name: (self._turn[name], name in owners)))
        self._in_force = {
            (name, cache)
            for name, cache in target.own
            if name in self.masks
            and (not self.missing[name].get(cache) or self._is_alone(name, cache, self.masks[name].get(cache, 0)))
        }

    def ways(self, names: Iterable[str], cache: int) -> int:
        """The ways that any of the groups has on the cache now."""
        return union(self.masks[name].get(cache, 0) for name in names)

    def waits(self, name: str) -> bool:
        """Whether the group does not exist yet, and can be created only when other groups have their masks."""
        earlier = (other for other in self.order if self._turn[other] < self._turn[name])
        return name not in self.masks and any(self.missing[other] for other in earlier)

    def in_the_way(self, name: str, cache: int, mask: int) -> list[str]:
        """The groups that have ways of this mask now, and must leave them before this group can have the mask."""
        own, goal, found = (name, cache) in self.target.own, self.target.masks[name][cache], []
        for other, masks in self.masks.items():
            overlaps = other != name and masks.get(cache, 0) & mask and (own or (other, cache) in self._in_force)
            # Groups that overlap in the target, because room is short, may overlap on the way, too.
            if overlaps and not goal & self.target.masks[other][cache]:
                found.append(other)
        return found

    def write(self, name: str, masks: dict[int, int]) -> None:
        """Note that the group has these masks now."""
        self.masks.setdefault(name, {}).update(masks)
        self.missing[name] = self._still_missing(name)
        self._in_force |= {
            (name, cache)
            for cache, mask in masks.items()
            if (name, cache) in self.target.own and self._is_alone(name, cache, mask)
        }

    def is_in_force(self, name: str, cache: int) -> bool:
        """Whether the group has its ways on the cache alone already, so that they are a promise."""
        return (name, cache) in self._in_force

    def least(self, name: str, cache: int) -> int:
        """The fewest ways that the group may have between two steps.

        For the default group that is its floor (rule 2). A VM and a class keep what they were granted (rule 4). A group
        that has nothing of its own needs only as many ways as the smallest legal mask has.
        """
        fewest, floor = self.inputs.cache_ways[cache].fewest, self.inputs.cache_ways[cache].floor
        goal, now = self.target.masks[name][cache].bit_count(), self.masks[name].get(cache, 0).bit_count()
        if name == DEFAULT_GROUP:
            return max(fewest, min(floor, goal, now))
        is_granted = self.is_in_force(name, cache) or name in self.inputs.names[Owner.CLASS]
        return max(fewest, min(goal, now)) if is_granted else fewest

    def _still_missing(self, name: str) -> dict[int, int]:
        now = self.masks.get(name, {})
        return {cache: mask for cache, mask in self.target.masks[name].items() if now.get(cache) != mask}

    def _is_alone(self, name: str, cache: int, mask: int) -> bool:
        others = (masks.get(cache, 0) for other, masks in self.masks.items() if other != name)
        return bool(mask) and not any(other & mask for other in others)
