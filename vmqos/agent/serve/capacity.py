# SPDX-License-Identifier: Apache-2.0
"""What a host can promise exclusively at all, whatever VMs run on it: what Placement counts against."""

from __future__ import annotations

from collections.abc import Sequence

from vmqos import allocation
from vmqos.allocation import Layout, Policy, Request
from vmqos.extra_specs import resources
from vmqos.group_names import Owner
from vmqos.host.resctrl_state import ResctrlState
from vmqos.local_api import contract
from vmqos.resctrl.capabilities import BandwidthUnit, Capabilities


def of(resctrl: ResctrlState, policy: Policy, requests: Sequence[Request] = ()) -> contract.Capacity:
    """What the host has to give, by the rules of the planner.

    The groups of exclusive VMs are looked through: what they hold is what is given. The shared floor, the ways of
    foreign groups and of shared classes are not to be had, nor are the CLOSIDs that are theirs or kept for classes.

    :param requests: of the running VMs; a shared class counts on the caches that its VMs can run on.
    """
    found, layout = resctrl.capabilities, resctrl.layout
    closids = allocation.divide_closids(found, layout, policy)
    traits = _traits(found)
    can_partition = bool(found.caches or found.bandwidths)
    if can_partition:
        traits |= {resources.SHARED_ROOM if closids.another else resources.SHARED_FULL}
    capacity: contract.Capacity = {
        "ways": 0,
        "longest": 0,
        "fewest": 1,
        "classes": closids.exclusive,
        "offered": sorted(map(resources.class_resource, closids.offered)),
        "refused": sorted(map(resources.class_resource, closids.refused)),
        "others": closids.others if can_partition else None,
        "held": _most_held(requests),
        "traits": sorted(traits),
    }
    if found.l3_caches and found.l3 is not None:
        others = Layout(tuple(group for group in layout.groups if group.owner is not Owner.VM))
        room = allocation.free_ways(found, others, policy, requests).values()
        capacity["ways"] = min(cache.free_ways for cache in room)
        capacity["longest"] = min(cache.largest_free_run for cache in room)
        capacity["fewest"] = max(1, found.l3.min_cbm_bits)
    return capacity


def _most_held(requests: Sequence[Request]) -> int:
    """The most ways of its own that one of the running VMs was promised."""
    return max((resources.requested(request.wants).get(resources.LLC_WAYS, 0) for request in requests), default=0)


def _traits(found: Capabilities) -> set[str]:
    events = found.monitoring.events if found.monitoring else ()
    unit = found.memory_bandwidth.unit if found.memory_bandwidth else None
    able = {
        resources.L3_CAT: found.l3 is not None,
        resources.L3_CDP: 3 in found.split_levels,
        resources.L2_CAT: found.l2 is not None,
        resources.MBA: unit is not None,
        resources.MBA_PERCENT: unit is BandwidthUnit.PERCENT,
        resources.MBA_MBPS: unit in (BandwidthUnit.MBPS, BandwidthUnit.EIGHTH_GBPS),
        resources.CMT: "llc_occupancy" in events,
        resources.MBM: any(event.startswith("mbm_") for event in events),
    }
    return {trait for trait, is_able in able.items() if is_able}
