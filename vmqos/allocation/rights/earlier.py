# SPDX-License-Identifier: Apache-2.0
"""How many ways a group was granted before, as far as that is known (rule 4).

There is no database. A running agent knows what earlier plans granted (:attr:`vmqos.allocation.Plan.granted`). An agent
that starts anew knows only the layout, and another program's write, or a cache that went off and on, may have spoilt
its masks. Then the evidence is that the group exists, the length of its mask, and its masks on other caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vmqos.allocation import caches
from vmqos.allocation.cache_ways import union
from vmqos.allocation.planner_input import PlannerInput
from vmqos.group_names import DEFAULT_GROUP, Owner


@dataclass(frozen=True, slots=True)
class EarlierGrant:
    """What a group was granted on one cache.

    :ivar ways: how many ways, at most as many as are asked for now; 0 for none.
    :ivar guessed: whether the number is only an upper bound, because the layout does not show the true one.
    """

    ways: int
    guessed: bool = False


NONE = EarlierGrant(0)


def of_vm(inputs: PlannerInput, group: str, cache: int, asked: int, held: Mapping[int, int]) -> EarlierGrant:
    """What a VM's own group was granted on a cache where it has no ways of its own now, or too few.

    A VM has the default group's mask where it can't run; nothing was granted to it there. But there are three cases in
    which a mask that looks like that is taken for a grant:

    * The mask has exactly the length that is asked for: another program may have given the default group the VM's ways.
    * Both masks have every way, as after a cache came online (``domain_setup_ctrlval`` in the kernel's resctrl).
    * The group was just created, and ``mkdir`` made its mask.

    None of them is one where the mask leaves the default group no place: then it is the default group's own mask of
    before, and an agent was killed after it had written one of the two masks and before it wrote the other.

    :param asked: how many ways it is to get.
    :param held: the ways that are its own now, by cache.
    """
    known = inputs.granted.get(group, {})
    if cache in known:
        return EarlierGrant(min(asked, known[cache]))
    if cache in held or group not in inputs.masks:
        return NONE
    cache_ways, mask, default = (
        inputs.cache_ways[cache],
        inputs.masks[group].get(cache, 0),
        inputs.masks[DEFAULT_GROUP].get(cache, 0),
    )
    if not cache_ways.legal(mask) or (mask == default != cache_ways.every and mask.bit_count() != asked):
        return NONE
    if mask != cache_ways.every and not _leaves_a_place(inputs, group, cache):
        return NONE
    if mask == cache_ways.every or mask.bit_count() != asked:
        # A VM has equally many ways on all caches of a level, because its grant grows on all of them or on none. But an
        # agent that knows the group, and has not seen it here, may have made it while the cache was offline.
        level = caches.level(cache)
        elsewhere = [ways.bit_count() for other, ways in held.items() if caches.level(other) == level]
        if elsewhere:
            return EarlierGrant(min(asked, *elsewhere), guessed=bool(known))
    return EarlierGrant(min(asked, mask.bit_count()), guessed=True)


def _leaves_a_place(inputs: PlannerInput, group: str, cache: int) -> bool:
    """Whether the default group could have had a legal mask beside a VM's mask and those that other VMs have alone.

    It had one when the VM's mask was granted (rule 2). Foreign groups and the operator's reservations count as places:
    they may have come since.
    """
    masks, default = inputs.masks, inputs.masks[DEFAULT_GROUP].get(cache, 0)
    others = (masks[name].get(cache, 0) for name in inputs.names[Owner.VM] if name != group)
    taken = masks[group].get(cache, 0) | union(mask for mask in others if not mask & default)
    cache_ways = inputs.cache_ways[cache]
    return cache_ways.largest(cache_ways.every & ~taken) >= cache_ways.fewest


def of_class(inputs: PlannerInput, group: str, cache: int, cap: int) -> EarlierGrant:
    """How many ways a class was granted on a cache.

    A class that is settled never has more ways than its cap. If a class has more ways, or every way, then it was just
    created, or the cache came online.

    :param cap: the class's cap on the cache.
    """
    known = inputs.granted.get(group, {})
    if cache in known:
        return EarlierGrant(min(cap, known[cache]))
    mask = inputs.masks.get(group, {}).get(cache, 0)
    count = mask.bit_count()
    return EarlierGrant(min(cap, count), guessed=count > cap or mask == inputs.cache_ways[cache].every)
