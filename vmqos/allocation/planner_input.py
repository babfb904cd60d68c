# SPDX-License-Identifier: Apache-2.0
"""What the planner looks at: the machine, the groups' ways, the requests and the operator's policy, by cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vmqos.allocation import caches
from vmqos.allocation.cache_ways import CacheWays, union
from vmqos.allocation.model import Group, Layout, Policy, Request
from vmqos.group_names import DEFAULT_GROUP, Owner
from vmqos.resctrl.capabilities import CacheResource, Capabilities


@dataclass(frozen=True, slots=True)
class PlannerInput:
    """The groups, the caches and the requests before the plan. Sets of ways are integers here.

    :ivar capabilities: what resctrl can do here.
    :ivar policy: the operator's choices.
    :ivar requests: the requests in order of arrival, one for each VM.
    :ivar groups: every group by name, in the order of names.
    :ivar names: the groups' names by their owner, each owner's in order.
    :ivar ours: the names of the groups of VMs and of the classes, in order.
    :ivar masks: each group's ways by cache, by its name; a cache that is missing counts as no way.
    :ivar cache_ways: what each cache has to give, by cache (:mod:`vmqos.allocation.caches`); none of L3 where it
        can't be partitioned, none of L2 where it can't or where no group and no request has to do with it.
    :ivar granted: how many ways earlier plans granted, by group and cache; what is missing is not known.
    :ivar leaves_out_l2: whether the machine has L2s that can be partitioned and are none of these caches.
    """

    capabilities: Capabilities
    policy: Policy
    requests: Sequence[Request]
    groups: Mapping[str, Group]
    names: Mapping[Owner, tuple[str, ...]]
    ours: tuple[str, ...]
    masks: Mapping[str, Mapping[int, int]]
    cache_ways: Mapping[int, CacheWays]
    granted: Mapping[str, Mapping[int, int]]
    leaves_out_l2: bool

    def ways(self, names: Iterable[str], cache: int) -> int:
        """The ways that any of these groups has on a cache."""
        return union(self.masks[name].get(cache, 0) for name in names if name in self.masks)


def read_input(
    capabilities: Capabilities,
    layout: Layout,
    policy: Policy,
    requests: Iterable[Request] = (),
    granted: Mapping[str, Mapping[int, int]] | None = None,
    with_l2: bool = False,
) -> PlannerInput:
    """Turn what the planner is given into integers by cache.

    A machine has many L2s, and mostly no VM has to do with them. So they are left out unless a VM wants some of them,
    or a group that we may write has less than all of one.

    :param requests: in any order; if there are several for one VM, only the first to arrive counts.
    :param granted: how many ways earlier plans granted, by group and cache, as far as that is known.
    :param with_l2: whether the L2s are wanted in any case.
    """
    first: dict[str, Request] = {}
    for request in sorted(requests, key=lambda request: (request.arrival, request.uuid)):
        first.setdefault(request.uuid, request)
    groups = {group.name: group for group in sorted(layout.groups, key=lambda group: group.name)}
    names = {owner: tuple(name for name in groups if groups[name].owner is owner) for owner in Owner}
    ours = tuple(sorted(names[Owner.VM] + names[Owner.CLASS]))
    l3, l2 = capabilities.l3, capabilities.l2
    resources = {cache: l3 for cache in l3.cache_ids} if l3 is not None else {}
    leaves_out_l2 = False
    if l2 is not None:
        masks_of_l2 = (caches.of_level(2, groups[name].masks) for name in (DEFAULT_GROUP, *ours) if name in groups)
        is_divided = any(mask != l2.cbm_mask for masks in masks_of_l2 for mask in masks.values())
        is_wanted = with_l2 or any(request.wants.l2_ways is not None for request in first.values())
        leaves_out_l2 = not (is_wanted or is_divided)
        if not leaves_out_l2:
            resources |= {caches.l2(cache): l2 for cache in l2.cache_ids}
    masks = {
        name: {cache: mask.bits for cache, mask in group.masks.items() if cache in resources}
        for name, group in groups.items()
    }
    default = masks.setdefault(DEFAULT_GROUP, {})
    foreign = [masks[name] for name in names[Owner.FOREIGN]]
    cache_ways = {}
    for cache, resource in resources.items():
        taken = union(found.get(cache, 0) for found in foreign)
        cache_ways[cache] = _cache_ways(resource, cache, policy, taken, default.get(cache, 0))
    asked = tuple(first.values())
    return PlannerInput(
        capabilities, policy, asked, groups, names, ours, masks, cache_ways, granted or {}, leaves_out_l2
    )


def _cache_ways(resource: CacheResource, cache: int, policy: Policy, foreign: int, default: int) -> CacheWays:
    """What one cache has to give.

    :param foreign: the ways that groups of others have.
    :param default: the ways that the default group has.
    """
    every, reserved = resource.cbm_mask.bits, policy.reserved_ways.bits if caches.level(cache) == 3 else 0
    shareable = resource.filled_by_devices[caches.id_of(cache)].bits & every
    clean = every & ~foreign & ~reserved
    company = default & foreign & ~reserved
    fewest = max(1, resource.min_cbm_bits)
    return CacheWays(
        every=every,
        pool=clean | company,
        company=company,
        exclusive=clean if policy.use_shareable_ways else clean & ~shareable,
        shareable=shareable,
        fewest=fewest,
        sparse=resource.sparse_masks,
        floor=max(policy.default_ways_min, fewest),
        reserved=reserved,
        foreign=foreign,
    )
