# SPDX-License-Identifier: Apache-2.0
"""What a host can promise exclusively at all, whatever VMs run on it: what Placement counts against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vmqos import allocation
from vmqos.allocation import Layout, Policy, Request
from vmqos.extra_specs import resources
from vmqos.group_names import Owner
from vmqos.host.resctrl_state import ResctrlState
from vmqos.openstack.placement import Inventory
from vmqos.resctrl.capabilities import BandwidthUnit, Capabilities

MEMBERS = 1_000_000
"""How many VMs Placement lets into one shared class: its control group serves any number."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a host has to give.

    :ivar ways: how many ways can be promised exclusively on every L3 at once, to however many VMs; less than that where
        they can't be cut up as the VMs want them.
    :ivar longest: the most ways that one VM can have.
    :ivar fewest: the fewest ways that a VM can have (``min_cbm_bits``).
    :ivar classes: how many VMs can have control groups of their own, by the CLOSIDs.
    :ivar offered: the resource classes of the listed shared classes that VMs can join.
    :ivar refused: those for which no CLOSID is left.
    :ivar others: how many classes that are not listed the host can have, those included that exist; ``None`` where
        their number is not bounded, or there is nothing to partition.
    :ivar held: the most ways that one running VM was promised, where ``max_unit`` must not be less because of that; 0
        where Placement itself is asked what VMs hold.
    :ivar traits: what the host is able to do.
    """

    ways: int = 0
    longest: int = 0
    fewest: int = 1
    classes: int = 0
    offered: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    others: int | None = None
    held: int = 0
    traits: frozenset[str] = frozenset()

    @property
    def inventories(self) -> dict[str, Inventory]:
        """In Placement's words, also where there is nothing: what VMs still hold can't be taken out of Placement."""
        ways = _inventory(self.ways, self.fewest, self.longest)
        return {
            resources.LLC_WAYS: replace(ways, max_unit=max(ways.max_unit, self.held)),
            resources.LLC_CLASSES: _inventory(self.classes, 1, 1),
            **dict.fromkeys(sorted(self.offered), _inventory(MEMBERS, 1, 1)),
            **dict.fromkeys(sorted(self.refused), _inventory(0, 1, 1)),
            **({} if self.others is None else {resources.LLC_OTHERS: _inventory(self.others, 1, 1)}),
        }


NOTHING = Capacity()
"""What a host has to give that can't be partitioned."""


def of(resctrl: ResctrlState, policy: Policy, requests: Sequence[Request] = ()) -> Capacity:
    """What the host has to give, by the rules of the planner.

    The groups of exclusive VMs are looked through: what they hold is what is given. The shared floor, the ways of
    foreign groups and of shared classes are not to be had, nor are the CLOSIDs that are theirs or kept for classes.

    :param requests: of the running VMs; a shared class counts on the caches that its VMs can run on.
    """
    found, layout = resctrl.capabilities, resctrl.layout
    closids = allocation.divide_closids(found, layout, policy)
    traits = _traits(found)
    can_partition = bool(found.caches or found.bandwidths)
    unlisted = closids.others if can_partition else None
    if can_partition:
        traits |= {resources.SHARED_ROOM if closids.another else resources.SHARED_FULL}
    offered, refused = (
        frozenset(map(resources.class_resource, classes)) for classes in (closids.offered, closids.refused)
    )
    if not found.l3_caches or found.l3 is None:
        return Capacity(classes=closids.exclusive, offered=offered, refused=refused, others=unlisted, traits=traits)
    others = Layout(tuple(group for group in layout.groups if group.owner is not Owner.VM))
    room = allocation.free_ways(found, others, policy, requests).values()
    return Capacity(
        ways=min(cache.free_ways for cache in room),
        longest=min(cache.largest_free_run for cache in room),
        fewest=max(1, found.l3.min_cbm_bits),
        classes=closids.exclusive,
        offered=offered,
        refused=refused,
        others=unlisted,
        traits=traits,
    )


def most_held(requests: Sequence[Request]) -> int:
    """The most ways of its own that one of the running VMs was promised."""
    return max((resources.requested(request.wants).get(resources.LLC_WAYS, 0) for request in requests), default=0)


def _traits(found: Capabilities) -> frozenset[str]:
    events = found.monitoring.events if found.monitoring else ()
    unit = found.memory_bandwidth.unit if found.memory_bandwidth else None
    able = {
        resources.L3_CAT: found.l3 is not None,
        resources.L3_CDP: found.cdp,
        resources.L2_CAT: found.l2 is not None,
        resources.MBA: unit is not None,
        resources.MBA_PERCENT: unit is BandwidthUnit.PERCENT,
        resources.MBA_MBPS: unit in (BandwidthUnit.MBPS, BandwidthUnit.EIGHTH_GBPS),
        resources.CMT: "llc_occupancy" in events,
        resources.MBM: any(event.startswith("mbm_") for event in events),
    }
    return frozenset(trait for trait, is_able in able.items() if is_able)


def _inventory(amount: int, least: int, most: int) -> Inventory:
    """Placement knows no total of 0: one that is reserved stands for it."""
    if amount < least or most < least:
        return Inventory(total=max(1, least), reserved=max(1, least), min_unit=least, max_unit=max(1, least))
    return Inventory(total=amount, min_unit=least, max_unit=most)
