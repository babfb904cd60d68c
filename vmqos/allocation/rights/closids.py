# SPDX-License-Identifier: Apache-2.0
"""Which CLOSIDs are kept for shared classes, and how many are left for others.

Placement counts the control groups of exclusive VMs. It can't count those of shared classes: a class takes a CLOSID for
its first VM and none for the next one. So the operator lists the classes, each has its CLOSID at any time, and the
number of all other classes is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vmqos.allocation import caches
from vmqos.allocation.model import Layout, Policy, Request
from vmqos.allocation.planner_input import read_input
from vmqos.allocation.rights.claims import read, unmet
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import Owner
from vmqos.resctrl.capabilities import Capabilities


@dataclass(frozen=True, slots=True)
class Closids:
    """How the CLOSIDs of a host are divided.

    :ivar exclusive: how many exclusive VMs can have a control group, those included that have one.
    :ivar offered: the listed classes that exist or have a free CLOSID.
    :ivar refused: the listed classes that this host can grant, and for which no CLOSID is left.
    :ivar another: whether one more class that is not listed can be made.
    :ivar others: how many classes that are not listed the host can have, those included that exist; ``None`` where
        their number is not bounded.
    """

    exclusive: int = 0
    offered: tuple[CacheRequest, ...] = ()
    refused: tuple[CacheRequest, ...] = ()
    another: bool = False
    others: int | None = None


def divide_closids(capabilities: Capabilities, layout: Layout, policy: Policy) -> Closids:
    """Divide the CLOSIDs, so that none is promised twice.

    A listed class that has no control group yet is offered only if a CLOSID is free for it. Of several the first ones
    of the list are. :func:`vmqos.allocation.rights.admission.admit` gives these CLOSIDs to nothing else.
    """
    kept, most = kept_classes(capabilities, policy), most_others(capabilities, policy)
    there = {group.name for group in layout.groups}
    others = sum(group.owner is Owner.CLASS and group.name not in kept for group in layout.groups)
    taken = sum(group.holds_closid for group in layout.groups if group.owner in (Owner.DEFAULT, Owner.FOREIGN))
    free = max(0, capabilities.num_closids - sum(group.holds_closid for group in layout.groups))
    missing = [name for name in kept if name not in there]
    unserved = missing[free:]
    more = max(0, free - len(missing))
    if most is not None:
        more = min(more, max(0, most - others))
    return Closids(
        max(0, capabilities.num_closids - taken - len(kept) - max(others, most or 0)),
        tuple(wants for name, granted in kept.items() if name not in unserved for wants in granted),
        tuple(wants for name in unserved for wants in kept[name]),
        more > 0,
        None if most is None else others + more,
    )


def most_others(capabilities: Capabilities, policy: Policy) -> int | None:
    """How many classes that are not listed may be made; ``None`` for as many as there are CLOSIDs."""
    if policy.other_classes is not None or not policy.placement_counts:
        return policy.other_classes
    return 2 if capabilities.num_closids >= 8 else 1


def kept_classes(capabilities: Capabilities, policy: Policy) -> Mapping[str, tuple[CacheRequest, ...]]:
    """The control groups of the listed classes on this machine, in the order of the list, with what they grant.

    What this machine can't grant has none. Two classes have one control group where the machine rounds both to the same
    step.
    """
    cores = capabilities.l2.cache_ids if capabilities.l2 else ()
    limited = capabilities.memory_bandwidth.cache_ids if capabilities.memory_bandwidth else ()
    reach = frozenset((*capabilities.l3_caches, *limited, *map(caches.l2, cores)))
    vms = {f"{number:032x}": wants for number, wants in enumerate(policy.shared_classes)}
    requests = [Request(uuid, wants, reach, arrival=0) for uuid, wants in vms.items()]
    inputs = read_input(capabilities, Layout(()), policy, requests)
    met = {request.uuid for request in requests if not unmet(inputs, request)}
    found: dict[str, tuple[CacheRequest, ...]] = {}
    for claim in read(inputs):
        if claim.uuid in met:
            found[claim.group] = (*found.get(claim.group, ()), vms[claim.uuid])
    return found
