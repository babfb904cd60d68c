# SPDX-License-Identifier: Apache-2.0
"""What VMs have of which libvirt says that they run, and no more: they could not be looked at, and shall keep it."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

from vmqos import allocation
from vmqos.agent.view import ResctrlView
from vmqos.allocation import DEFAULT_GROUP, Group, Request, caches
from vmqos.openstack.extra_specs import CachePolicy, CacheRequest

_FIRST = 0
"""They have what they have, so they came before those that want something."""


def requests(view: ResctrlView, unseen: Set[str]) -> Iterator[Request]:
    """What the planner has to be asked for, so that the VMs keep their groups as they are.

    :param unseen: UUIDs of the VMs.
    """
    default = view.group(DEFAULT_GROUP)
    for uuid in sorted(unseen):
        own = view.group(allocation.vm_group(uuid))
        if own is not None and default is not None and (kept := of_its_own(view, own, default)):
            yield Request(uuid, *kept, _FIRST)
            continue
        # The tasks of such a VM that do without its promise are counted in the default group, too.
        classes = (group for group in view.layout.groups if group.name != DEFAULT_GROUP)
        shared = next((group for group in classes if _is_monitored_in(view, uuid, group)), None)
        grant = allocation.class_grant(shared.name) if shared is not None else None
        if shared is not None and grant is not None:
            wants = CacheRequest(
                ways=grant.ways or None,
                code_ways=grant.code or None,
                data_ways=grant.data or None,
                l2_ways=grant.l2 or None,
                policy=CachePolicy.SHARED,
                bandwidth_percent=grant.percent or None,
                bandwidth_mbps=grant.mbps or None,
            )
            limited = [cache for cache, value in shared.throttles.items() if value < _unlimited(view)]
            reach = (*limited, *caches.among(2, shared.masks)) if limited else shared.masks
            yield Request(uuid, wants, frozenset(reach), _FIRST)


def of_its_own(view: ResctrlView, own: Group, default: Group) -> tuple[CacheRequest, frozenset[int]] | None:
    """What a VM's own group grants it, as a request, and on which caches; ``None`` where that is nothing."""
    held = {
        cache: mask
        for cache, mask in own.masks.items()
        if cache in default.masks and not mask.overlaps(default.masks[cache])
    }
    limits = {cache: value for cache, value in own.throttles.items() if value < _unlimited(view)}
    if not held and not limits:
        return None
    of_l3 = caches.among(3, held)
    wants = ways_of(own, of_l3, caches.among(2, held))
    return with_limits_of(view, own, wants), frozenset(held) if of_l3 else frozenset((*held, *limits))


def ways_of(group: Group, of_l3: Set[int], of_l2: Set[int]) -> CacheRequest:
    """The ways that a VM's own group has on all of these caches, as a request; of no caches it asks for none.

    :param of_l3: L3s that the group has a mask on.
    :param of_l2: L2s that the group has a mask on.
    """
    wants = CacheRequest(l2_ways=min((max(1, group.masks[cache].count) for cache in of_l2), default=None))
    least = min(of_l3, key=lambda cache: group.masks[cache].count, default=None)
    if least is None:
        return wants
    parts = group.splits.get(least)
    if parts is not None and parts.is_apart:
        return replace(wants, code_ways=parts.code.count, data_ways=parts.data.count)
    return replace(wants, ways=max(1, group.masks[least].count))


def with_limits_of(view: ResctrlView, own: Group, wants: CacheRequest) -> CacheRequest:
    """The request with the bandwidth that the VM's own group limits it to, whatever was asked for."""
    limits = (value for value in own.throttles.values() if value < _unlimited(view))
    grant = allocation.grant(view.capabilities.memory_bandwidth, min(limits, default=None))
    return replace(wants, bandwidth_percent=grant.percent or None, bandwidth_mbps=grant.mbps or None)


def _unlimited(view: ResctrlView) -> int:
    bandwidth = view.capabilities.memory_bandwidth
    return bandwidth.unit.unlimited if bandwidth is not None else 0


def _is_monitored_in(view: ResctrlView, uuid: str, group: Group) -> bool:
    return allocation.vm_group(uuid) in view.monitoring_groups.get(group.name, ())
