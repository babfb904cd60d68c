# SPDX-License-Identifier: Apache-2.0
"""What could be promised exclusively now, cache by cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmqos.allocation import caches
from vmqos.allocation.claims import in_order, read
from vmqos.allocation.fitting import unpromised
from vmqos.allocation.model import Layout, Policy, Request
from vmqos.allocation.packing import Piece
from vmqos.allocation.room import furnish
from vmqos.allocation.world import look
from vmqos.group_names import DEFAULT_GROUP, Owner, class_request
from vmqos.resctrl.capabilities import Capabilities


@dataclass(frozen=True, slots=True)
class FreeRoom:
    """What one cache has left.

    :ivar free_ways: how many ways could be promised exclusively, to however many VMs.
    :ivar largest_free_run: how many ways one more VM could get for itself, other VMs' masks being moved for it as a
        plan would; it waits where they can't be moved without an overlap on the way.
    """

    free_ways: int
    largest_free_run: int


def free_ways(
    capabilities: Capabilities, layout: Layout, policy: Policy, requests: Sequence[Request] = (), level: int = 3
) -> dict[int, FreeRoom]:
    """What each cache has left beside the groups that are there, by cache id; empty where none can be partitioned.

    :param level: of the caches, 2 or 3.
    :param requests: of the running VMs. A class is counted where its VMs can run; one whose VMs are not among these is
        counted everywhere.
    """
    resource = capabilities.l3 if level == 3 else capabilities.l2
    if resource is None:
        return {}
    world = look(capabilities, capabilities.l3, layout, policy, capabilities.l2)
    used: dict[str, set[int]] = {}
    for claim in read(world, in_order(requests)):
        used.setdefault(claim.group, set()).update(claim.caches)
    found = {}
    for cache_id in resource.cache_ids:
        cache = cache_id if level == 3 else caches.l2(cache_id)
        line = world.lines[cache]
        pool = world.masks[DEFAULT_GROUP].get(cache, 0)
        vms = {name: world.masks[name].get(cache, 0) for name in world.named(Owner.VM)}
        held = [
            Piece(name, mask.bit_count(), mask) for name, mask in vms.items() if line.legal(mask) and not mask & pool
        ]
        granted = [
            min(grants.l3_ways if level == 3 else (grants.l2_ways or 0), world.masks[name].get(cache, 0).bit_count())
            for name in world.named(Owner.CLASS)
            if cache in used.get(name, world.lines) and (grants := class_request(name))
        ]
        room = furnish(line, held, world.floor(cache), max(granted, default=0))
        total = unpromised(room.line, room.lengths(), room.need) if not room.closed else 0
        one = room.most("")
        found[cache_id] = FreeRoom(total if one else 0, one)
    return found
