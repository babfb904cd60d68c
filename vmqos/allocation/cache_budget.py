# SPDX-License-Identifier: Apache-2.0
"""What is promised on one cache, and whether more can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmqos.allocation.cache_ways import CacheWays, Need, union
from vmqos.allocation.fitting import fits, largest_newcomer, largest_pool
from vmqos.allocation.packing import WantedMask


@dataclass(slots=True)
class CacheBudget:
    """One cache's promises, filled in while requests are let in.

    :ivar cache_ways: what the cache has to give; the ways of ``stuck`` are not in it.
    :ivar wanted_masks: the exclusive masks that the planner places, by VM.
    :ivar stuck: the exclusive masks that can't be placed where they should be, and stay where they are, by VM.
    :ivar floor: how many ways the pool has to have before anything is promised exclusively (rule 2).
    :ivar need: what it surely has: the floor, and what classes were granted, as far as there is room.
    :ivar frozen: whether no promise can be added.
    """

    cache_ways: CacheWays
    wanted_masks: dict[str, WantedMask]
    stuck: dict[str, int]
    floor: int
    need: Need
    frozen: bool = False

    @property
    def closed(self) -> bool:
        """Whether no way can be promised exclusively."""
        return self.frozen or self.need.clean < self.floor

    def lengths(self, without: str = "") -> tuple[int, ...]:
        """The lengths of the masks to be placed."""
        return tuple(wanted.length for key, wanted in self.wanted_masks.items() if key != without)

    def taken(self, without: str = "") -> int:
        """How many ways are promised exclusively, to other VMs than this one."""
        return sum(self.lengths(without)) + sum(mask.bit_count() for key, mask in self.stuck.items() if key != without)

    def takes(self, key: str, length: int) -> bool:
        """Whether the VM's mask can have that length."""
        if key in self.stuck or self.closed:
            return False
        return fits(self.cache_ways, (*self.lengths(key), length), self.need)

    def most(self, key: str) -> int:
        """The longest mask that the VM can have now."""
        if key in self.stuck or self.closed:
            return 0
        return largest_newcomer(self.cache_ways, self.lengths(key), self.need)

    def raise_pool(self, ways: int) -> None:
        """Promise the pool so many ways, or as many as there can be."""
        if ways > self.need.width:
            most = largest_pool(self.cache_ways, self.lengths(), self.need.clean)
            self.need = Need(max(self.need.width, min(ways, most)), self.need.clean)


def budget_for(
    cache_ways: CacheWays, held: Sequence[WantedMask], floor: int, granted: int = 0, frozen: bool = False
) -> CacheBudget:
    """The budget with the ways that VMs have now, which they keep in any case.

    A mask on ways that can't be promised (a foreign group came, the operator reserved ways) moves away if it can.
    Neither that nor anything else takes from the pool what it can have.

    :param held: the masks by VM in order of arrival, none of them longer than it is now.
    :param floor: how many ways the pool has to have before anything is promised exclusively.
    :param granted: how many ways the largest class has.
    :param frozen: whether every mask stays where it is.
    """
    amiss = {wanted.key: wanted for wanted in held if frozen or wanted.held & ~cache_ways.exclusive}
    stuck = {
        key: cache_ways.best_part(wanted.held, wanted.length, (cache_ways.exclusive, cache_ways.pool))
        for key, wanted in amiss.items()
    }
    wanted_masks = {wanted.key: wanted for wanted in held if wanted.key not in stuck}
    asked = max(floor, granted)
    need = _need(cache_ways, wanted_masks, stuck, floor, asked)
    if not frozen:
        if fits(cache_ways, [wanted.length for wanted in held], need):
            wanted_masks, stuck = {wanted.key: wanted for wanted in held}, {}
        for key in list(stuck):
            others = {other: mask for other, mask in stuck.items() if other != key}
            lengths = [wanted.length for wanted in (*wanted_masks.values(), amiss[key])]
            if fits(cache_ways.without(union(others.values())), lengths, need):
                stuck = others
                wanted_masks[key] = amiss[key]
        need = _need(cache_ways, wanted_masks, stuck, floor, asked)
    return CacheBudget(cache_ways.without(union(stuck.values())), wanted_masks, stuck, floor, need, frozen)


def _need(
    cache_ways: CacheWays, wanted_masks: Mapping[str, WantedMask], stuck: Mapping[str, int], floor: int, asked: int
) -> Need:
    """What the pool can have of what is asked for it, the width first."""
    left = cache_ways.without(union(stuck.values()))
    lengths = [wanted.length for wanted in wanted_masks.values()]
    width = min(asked, largest_pool(left, lengths))
    clean = range(min(floor, width), -1, -1)
    return Need(width, next((ways for ways in clean if fits(left, lengths, Need(width, ways))), 0))
