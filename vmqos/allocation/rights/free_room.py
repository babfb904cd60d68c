# SPDX-License-Identifier: Apache-2.0
"""What could be promised exclusively now, cache by cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmqos.allocation import caches
from vmqos.allocation.cache_ways import WantedMask
from vmqos.allocation.model import Layout, Policy, Request
from vmqos.allocation.planner_input import read_input
from vmqos.allocation.rights.cache_budget import budget_for, unpromised
from vmqos.allocation.rights.claims import read
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
    inputs = read_input(capabilities, layout, policy, requests, with_l2=level == 2)
    used: dict[str, set[int]] = {}
    for claim in read(inputs):
        used.setdefault(claim.group, set()).update(claim.caches)
    found = {}
    for cache_id in resource.cache_ids:
        cache = cache_id if level == 3 else caches.l2(cache_id)
        cache_ways = inputs.cache_ways[cache]
        pool = inputs.masks[DEFAULT_GROUP].get(cache, 0)
        vms = {name: inputs.masks[name].get(cache, 0) for name in inputs.names[Owner.VM]}
        held = [
            WantedMask(name, mask.bit_count(), mask)
            for name, mask in vms.items()
            if cache_ways.legal(mask) and not mask & pool
        ]
        granted = [
            min(grants.l3_ways if level == 3 else (grants.l2_ways or 0), inputs.masks[name].get(cache, 0).bit_count())
            for name in inputs.names[Owner.CLASS]
            if cache in used.get(name, inputs.cache_ways) and (grants := class_request(name))
        ]
        budget = budget_for(cache_ways, held, max(granted, default=0))
        total = unpromised(budget.cache_ways, budget.lengths(), budget.need) if not budget.closed else 0
        one = budget.most("")
        found[cache_id] = FreeRoom(total if one else 0, one)
    return found
