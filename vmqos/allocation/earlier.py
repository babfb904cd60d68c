# SPDX-License-Identifier: Apache-2.0
"""How many ways a group was granted before, as far as that can be told (rule 4).

There is no database. What earlier plans granted is known while the agent runs (:attr:`vmqos.allocation.Plan.granted`).
An agent that starts anew has the layout alone, and an outsider's write or a cache that went off and on may have spoilt
the masks in it. Then the group's existence, the length of its mask and its masks on other caches are the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vmqos.allocation import caches
from vmqos.allocation.world import World
from vmqos.group_names import DEFAULT_GROUP


@dataclass(frozen=True, slots=True)
class EarlierGrant:
    """What a group was granted on one cache.

    :ivar ways: how many ways, at most as many as are asked for now; 0 for none.
    :ivar guessed: whether that is no more than an upper bound, because the layout does not show the true number.
    """

    ways: int
    guessed: bool = False


NONE = EarlierGrant(0)


def of_vm(world: World, group: str, cache: int, asked: int, held: Mapping[int, int]) -> EarlierGrant:
    """What a VM's own group was granted on a cache where it has no ways of its own now, or too few.

    A VM has the default group's mask where it can't run; nothing was granted to it there. Where that mask has exactly
    the length that is asked for, the layout may lie: an outsider gave the default group the VM's ways. The same holds
    where both have every way, as after a cache came online (``domain_setup_ctrlval`` in the kernel's resctrl), and for
    a group that was just created, whose mask ``mkdir`` made. All three are taken for a grant.

    :param asked: how many ways it is to get.
    :param held: the ways that are its own now, by cache.
    """
    known = world.granted.get(group, {})
    if cache in known:
        return EarlierGrant(min(asked, known[cache]))
    if cache in held or group not in world.masks:
        return NONE
    line, mask, default = world.lines[cache], world.masks[group].get(cache, 0), world.masks[DEFAULT_GROUP].get(cache, 0)
    if not line.legal(mask) or (mask == default != line.every and mask.bit_count() != asked):
        return NONE
    if mask == line.every or mask.bit_count() != asked:
        # A grant has as many ways on each cache of a level, for it grows on all of them or on none. But an agent that
        # knows the group, and has not seen it here, may have made it while the cache was offline.
        level = caches.level(cache)
        elsewhere = [ways.bit_count() for other, ways in held.items() if caches.level(other) == level]
        if elsewhere:
            return EarlierGrant(min(asked, *elsewhere), guessed=bool(known))
    return EarlierGrant(min(asked, mask.bit_count()), guessed=True)


def of_class(world: World, group: str, cache: int, cap: int) -> EarlierGrant:
    """How many ways a class was granted on a cache.

    A class that is settled never has more ways than its cap. One that has more, or has every way, was just created, or
    the cache came online.

    :param cap: the class's cap on the cache.
    """
    known = world.granted.get(group, {})
    if cache in known:
        return EarlierGrant(min(cap, known[cache]))
    mask = world.masks.get(group, {}).get(cache, 0)
    count = mask.bit_count()
    return EarlierGrant(min(cap, count), guessed=count > cap or mask == world.lines[cache].every)


def remember(world: World, group: str, now: Mapping[int, int], before: Mapping[int, int]) -> dict[int, int]:
    """What a group is granted by a plan, to be known to the next one: how many ways, by cache.

    What was granted and could not be given back stays owed. So does what was granted on a cache that is offline. Where
    nothing was granted on a cache that is online, the number is 0.

    :param now: how many ways it has when the plan is carried out, by cache.
    :param before: how many ways it was surely granted before, by cache.
    """
    offline = {cache: ways for cache, ways in world.granted.get(group, {}).items() if cache not in world.lines}
    nothing = dict.fromkeys(world.lines, 0)
    return offline | nothing | {cache: max(ways, before.get(cache, 0)) for cache, ways in now.items()}
