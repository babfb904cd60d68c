# SPDX-License-Identifier: Apache-2.0
"""What each VM asks for in terms of this machine, and what it already has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vmqos.allocation.model import DEFAULT_GROUP, Request
from vmqos.allocation.names import class_group, vm_group
from vmqos.allocation.world import World
from vmqos.openstack.extra_specs import CachePolicy


@dataclass(frozen=True, slots=True)
class ExclusiveClaim:
    """A VM that asks for ways of its own.

    :ivar uuid: whose claim it is.
    :ivar group: the control group that is or would be its.
    :ivar caches: the caches that the VM can run on, and that resctrl knows.
    :ivar asked: how many ways its flavor says.
    :ivar ways: how many it is to get: as many as the smallest legal mask has, or more.
    :ivar held: the ways that are its own now, by cache; a VM that has none anywhere is a newcomer.
    :ivar near: the ways of its group that it need not leave, though somebody else has them too.
    """

    uuid: str
    group: str
    caches: tuple[int, ...]
    asked: int
    ways: int
    held: Mapping[int, int] = field(default_factory=dict)
    near: Mapping[int, int] = field(default_factory=dict)

    def has(self, cache: int) -> int:
        """How many of the ways asked for it has on a cache now."""
        return min(self.ways, self.held.get(cache, 0).bit_count())


@dataclass(frozen=True, slots=True)
class SharedClaim:
    """A VM that asks for a cap within the pool.

    :ivar uuid: whose claim it is.
    :ivar group: the class that grants it.
    :ivar caches: the caches that the VM can run on, and that resctrl knows.
    :ivar asked: how many ways its flavor says.
    :ivar ways: the class's cap: at least the smallest legal mask, at most the whole cache.
    """

    uuid: str
    group: str
    caches: tuple[int, ...]
    asked: int
    ways: int


Claim = ExclusiveClaim | SharedClaim


def in_order(requests: Iterable[Request]) -> list[Request]:
    """The requests, first come first; of several for one VM the first counts."""
    first: dict[str, Request] = {}
    for request in sorted(requests, key=lambda request: (request.arrival, request.uuid)):
        first.setdefault(request.uuid, request)
    return list(first.values())


def read(world: World, requests: Sequence[Request]) -> list[Claim]:
    """What the requests, in order, come to; those that ask for nothing, or can run on no L3 here, make no claim."""
    claims: list[Claim] = []
    exclusive: list[ExclusiveClaim] = []
    for request in requests:
        asked, caches = request.wants.ways, tuple(sorted(request.caches & world.lines.keys()))
        if asked is None or not caches:
            continue
        if request.wants.policy is CachePolicy.SHARED:
            most = max(world.lines[cache].every.bit_count() for cache in caches)
            ways = min(max(asked, world.fewest), most)
            claims.append(SharedClaim(request.uuid, class_group(ways), caches, asked, ways))
        else:
            ways = max(asked, world.fewest)
            exclusive.append(ExclusiveClaim(request.uuid, vm_group(request.uuid), caches, asked, ways))
    order = {request.uuid: number for number, request in enumerate(requests)}
    claims += _with_what_they_hold(world, exclusive)
    return sorted(claims, key=lambda claim: order[claim.uuid])


def _with_what_they_hold(world: World, claims: Collection[ExclusiveClaim]) -> list[ExclusiveClaim]:
    """Fill in what is the VMs' own now.

    A mask that overlaps the default group's is no grant: the group was just created when an agent was killed, or the VM
    did not use that cache until now, or somebody wrote the default group's masks. The VM then has to be placed (anew).
    One that overlaps a class's alone is a grant: it is the class that was just created.
    """
    settled = dict.fromkeys(world.lines, 0)
    default = world.masks[DEFAULT_GROUP]
    present = [claim for claim in claims if claim.group in world.masks]
    held: dict[str, dict[int, int]] = {claim.uuid: {} for claim in present}
    near: dict[str, dict[int, int]] = {claim.uuid: {} for claim in present}
    for found, in_force in ((held, True), (near, False)):
        for claim in present:
            masks = world.masks[claim.group]
            for cache in claim.caches:
                mask = masks.get(cache, 0)
                wanted = not mask & default.get(cache, 0) if in_force else mask.bit_count() == claim.ways
                if wanted and world.lines[cache].legal(mask) and not mask & settled[cache]:
                    settled[cache] |= mask
                    found[claim.uuid][cache] = mask
    return [
        replace(claim, held=held[claim.uuid], near=near[claim.uuid]) if claim.uuid in held else claim
        for claim in claims
    ]
