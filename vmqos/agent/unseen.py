# SPDX-License-Identifier: Apache-2.0
"""What VMs have of which libvirt says that they run, and no more: they could not be looked at, and shall keep it."""

from __future__ import annotations

from collections.abc import Iterator, Set

from vmqos import allocation
from vmqos.agent.view import ResctrlView
from vmqos.allocation import DEFAULT_GROUP, Group, Request
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
        if own is not None and default is not None:
            held = {
                cache: mask
                for cache, mask in own.masks.items()
                if cache in default.masks and not mask.overlaps(default.masks[cache])
            }
            if held:
                wants = CacheRequest(ways=min(mask.count for mask in held.values()))
                yield Request(uuid, wants, frozenset(held), _FIRST)
                continue
        shared = next((group for group in view.layout.groups if _is_monitored_in(view, uuid, group)), None)
        ways = allocation.class_ways(shared.name) if shared is not None else None
        if shared is not None and ways is not None:
            wants = CacheRequest(ways=ways, policy=CachePolicy.SHARED)
            yield Request(uuid, wants, frozenset(shared.masks), _FIRST)


def _is_monitored_in(view: ResctrlView, uuid: str, group: Group) -> bool:
    return allocation.vm_group(uuid) in view.monitoring_groups.get(group.name, ())
