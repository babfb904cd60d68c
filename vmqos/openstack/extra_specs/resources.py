# SPDX-License-Identifier: Apache-2.0
"""What a flavor's promise takes of a host, in Placement's words: resource classes, traits, the provider's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from vmqos.openstack.extra_specs import CachePolicy, CacheRequest

LLC_WAYS = "CUSTOM_LLC_WAYS"
"""Resource class: ways that can be promised exclusively on every L3 of the host at once."""

LLC_CLASSES = "CUSTOM_LLC_CLASSES"
"""Resource class: control groups for exclusive VMs. Each takes a CLOSID, and these run out before the ways do."""

CLASSES = (LLC_WAYS, LLC_CLASSES)
"""All resource classes of vmqos; the provider holds no others."""

# os-traits (3.9) has none for resource control: the CPU flags it knows are those that libvirt tells of a guest's CPU.
L3_CAT = "CUSTOM_VMQOS_L3_CAT"
"""Trait: the ways of L3 can be given out."""

L3_CDP = "CUSTOM_VMQOS_L3_CDP"
"""Trait: they can be given out for code and for data apart."""

L2_CAT = "CUSTOM_VMQOS_L2_CAT"
"""Trait: the ways of L2 can be given out."""

MBA = "CUSTOM_VMQOS_MBA"
"""Trait: memory bandwidth can be limited, in whatever unit. One of the next two says in which."""

MBA_PERCENT = "CUSTOM_VMQOS_MBA_PERCENT"
"""Trait: memory bandwidth can be limited by per cent."""

MBA_MBPS = "CUSTOM_VMQOS_MBA_MBPS"
"""Trait: memory bandwidth can be limited in MB/s."""

CMT = "CUSTOM_VMQOS_CMT"
"""Trait: the occupancy of L3 is counted."""

MBM = "CUSTOM_VMQOS_MBM"
"""Trait: memory bandwidth is counted."""

TRAITS = (L3_CAT, L3_CDP, L2_CAT, MBA, MBA_PERCENT, MBA_MBPS, CMT, MBM)
"""All traits of vmqos; the provider carries no others of the namespace ``CUSTOM_VMQOS_``."""

PROVIDER_SUFFIX = "_LLC"
"""How the names of the providers end, and no other provider's name should."""

# nova.scheduler.utils.ResourceRequest.XS_RES_PATTERN
_ASKED = re.compile(r"resources([a-zA-Z0-9_-]{1,64})?:([A-Z0-9_]+)")


def provider_name(hostname: str) -> str:
    """The name of a compute node's provider of cache; it is a child of the compute node's own.

    :param hostname: the hypervisor hostname of the compute node, which is the name of its root provider.
    """
    return hostname + PROVIDER_SUFFIX


def hostname_of(provider: str) -> str | None:
    """The hypervisor hostname of the compute node whose provider of cache has that name; ``None`` for any other's."""
    hostname = provider.removesuffix(PROVIDER_SUFFIX)
    return None if hostname in ("", provider) else hostname


def requested(request: CacheRequest | None) -> dict[str, int]:
    """What the promise takes of a host's provider, by resource class; empty where it takes nothing that is counted.

    An exclusive VM takes its ways and one control group. A limit in MB/s binds all tasks of a control group together,
    so it takes one, too, as L2 ways do; a limit in per cent alone binds each CPU by itself and is granted by a class.
    Ways for code and ways for data are added up: a way that both fill would be no way of either alone.

    A shared VM takes nothing: its ways are a cap within the pool, which all others fill too. The control group of its
    class is made for the first VM with that cap and serves all further ones, on every host anew; no request of a
    flavor can say that. So the host's agent takes the control groups of the classes that exist out of the inventory of
    :data:`LLC_CLASSES` instead, and the scheduler's filter looks for the class (:func:`shared_class`). Nor are L2 ways
    and bandwidth counted.

    :param request: what the flavor's extra specs ask for; ``None`` where they ask for nothing.
    """
    if request is None or request.policy is not CachePolicy.EXCLUSIVE:
        return {}
    ways = (request.ways or 0) + (request.code_ways or 0) + (request.data_ways or 0)
    if ways:
        return {LLC_WAYS: ways, LLC_CLASSES: 1}
    alone = request.bandwidth_mbps is not None or request.l2_ways is not None
    return {LLC_CLASSES: 1} if alone else {}


def shared_class(request: CacheRequest) -> CacheRequest | None:
    """What the class grants that serves the promise, for any VM; ``None`` where a VM gets a control group of its own.

    VMs whose promises have the same class share one control group on a host. Two classes may come to one on some host,
    which rounds both to the same step; that is not known here.
    """
    return None if requested(request) else replace(request, vcpus=None)


def required_traits(request: CacheRequest) -> frozenset[str]:
    """The traits that a host's provider has where the promise can be kept, whatever is taken there."""
    traits = {
        L3_CAT: request.ways is not None,
        L3_CDP: request.code_ways is not None,
        L2_CAT: request.l2_ways is not None,
        MBA_PERCENT: request.bandwidth_percent is not None,
        MBA_MBPS: request.bandwidth_mbps is not None,
    }
    return frozenset(trait for trait, required in traits.items() if required)


def as_extra_specs(resources: Mapping[str, int]) -> dict[str, str]:
    """The extra specs by which a flavor asks Placement for these resources."""
    return {f"resources:{name}": str(amount) for name, amount in resources.items()}


def asking(specs: Mapping[str, str]) -> dict[str, str]:
    """Those of a flavor's extra specs by which it asks Placement for the resource classes of vmqos.

    The granular forms (``resources1:``, ``resources_CACHE:``) are among them.
    """
    return {
        key: value for key, value in specs.items() if (found := _ASKED.fullmatch(key)) and is_resource_class(found[2])
    }


def is_resource_class(name: str) -> bool:
    """Whether a resource class is one of vmqos."""
    return name in CLASSES


def asked(specs: Mapping[str, str]) -> dict[str, int]:
    """How much a flavor's extra specs ask Placement for, by resource class, all request groups together.

    An amount that Nova would ignore, because it is no number, asks for nothing; neither does 0.
    """
    total: dict[str, int] = {}
    for key, value in asking(specs).items():
        name = key.partition(":")[2]
        if value.isascii() and value.isdigit() and int(value):
            total[name] = total.get(name, 0) + int(value)
    return total
