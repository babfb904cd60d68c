# SPDX-License-Identifier: Apache-2.0
"""What a flavor's promise takes of a host, in Placement's words: resource classes, traits, the provider's name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from vmqos import extra_specs
from vmqos.extra_specs import CachePolicy, CacheRequest, InvalidExtraSpecs

LLC_WAYS = "CUSTOM_LLC_WAYS"
"""Resource class: ways that can be promised exclusively on every L3 of the host at once."""

LLC_CLASSES = "CUSTOM_LLC_CLASSES"
"""Resource class: control groups for exclusive VMs. Each takes a CLOSID, and these run out before the ways do."""

CLASSES = (LLC_WAYS, LLC_CLASSES)
"""The resource classes that every provider of vmqos has."""

LLC_SHARED = "CUSTOM_LLC_SHARED_"
"""How the resource classes begin that stand for shared classes, such as ``CUSTOM_LLC_SHARED_WAYS4_MB50``. A host has
one for each class that it keeps a CLOSID for, and gives any number of it."""

LLC_OTHERS = LLC_SHARED + "OTHERS"
"""Resource class: how many different shared classes a host can have for which it keeps no CLOSID, those that exist
included. The scheduler's filter reads the total, and no flavor asks for it."""

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

SHARED_ROOM = "CUSTOM_VMQOS_SHARED_ROOM"
"""Trait: the host can make one more shared class for which it keeps no CLOSID. For the scheduler's filter alone."""

SHARED_FULL = "CUSTOM_VMQOS_SHARED_FULL"
"""Trait: it can't. An agent that is older than both traits sets neither."""

TRAITS = (L3_CAT, L3_CDP, L2_CAT, MBA, MBA_PERCENT, MBA_MBPS, CMT, MBM, SHARED_ROOM, SHARED_FULL)
"""All traits of vmqos; the provider carries no others of the namespace ``CUSTOM_VMQOS_``."""

PROMISED = frozenset({L3_CAT, L3_CDP, L2_CAT, MBA_PERCENT, MBA_MBPS})
"""The traits that promises need of a host (:func:`required_traits`)."""

PROVIDER_SUFFIX = "_LLC"
"""How the names of the providers end, and no other provider's name should."""

# nova.scheduler.utils.ResourceRequest.XS_RES_PATTERN
_ASKED = re.compile(r"resources([a-zA-Z0-9_-]{1,64})?:([A-Z0-9_]+)")
_TRAIT = "trait:"
_REQUIRED = "required"

_WORDS = {
    "ways": extra_specs.WAYS,
    "code": extra_specs.CODE_WAYS,
    "data": extra_specs.DATA_WAYS,
    "l2ways": extra_specs.L2_WAYS,
    "mb": extra_specs.BANDWIDTH_PERCENT,
    "mbps": extra_specs.BANDWIDTH_MBPS,
}
_PART = re.compile(rf"({'|'.join(_WORDS)})([1-9][0-9]{{0,8}})")
_AMOUNT = re.compile(r"[0-9]{1,255}")
"""Nova's API takes no longer values."""


def provider_name(hostname: str) -> str:
    """The name of a compute node's provider of cache; it is a child of the compute node's own.

    :param hostname: the hypervisor hostname of the compute node, which is the name of its root provider.
    """
    return hostname + PROVIDER_SUFFIX


def requested(request: CacheRequest | None) -> dict[str, int]:
    """What a flavor asks Placement for, by resource class; empty for a promise of nothing.

    An exclusive VM takes its ways and one control group. A limit in MB/s binds all tasks of a control group together,
    so it takes one, too, as L2 ways do; a limit in per cent alone binds each CPU by itself and is granted by a class.
    Ways for code and ways for data are added up: a way that both fill would be no way of either alone.

    A shared VM takes neither ways nor a control group: its ways are a cap within the pool, and its control group, the
    class, serves all VMs of the host with the same promise. It asks for its class by name (:func:`shared_resource`).
    L2 ways and bandwidth are not counted.

    :param request: what the flavor's extra specs ask for; ``None`` where they ask for nothing.
    """
    if request is None or not extra_specs.asks_for(request):
        return {}
    shared = shared_resource(request)
    if shared is not None:
        return {shared: 1}
    ways = request.l3_ways
    return {LLC_WAYS: ways, LLC_CLASSES: 1} if ways else {LLC_CLASSES: 1}


def shared_class(request: CacheRequest) -> CacheRequest | None:
    """What the class grants that serves the promise, for any VM; ``None`` where a VM gets a control group of its own.

    VMs whose promises have the same class share one control group on a host. Two classes may come to one on some host,
    which rounds both to the same step; that is not known here.
    """
    ways = (request.ways, request.code_ways, request.data_ways)
    alone = all(count is None for count in (*ways, request.l2_ways, request.bandwidth_mbps))
    is_shared = request.policy is CachePolicy.SHARED or alone
    return replace(request, vcpus=None) if is_shared else None


def class_name(shared: CacheRequest) -> str:
    """How a shared class is called in the configuration, such as ``ways4-mb50``.

    The control group of such a class is called ``vmqos.shared-ways4-mb50``, where the host rounds none of it.

    :param shared: as :func:`shared_class` returns it.
    """
    amounts = ((word, getattr(shared, key.field)) for word, key in _WORDS.items())
    return "-".join(f"{word}{amount}" for word, amount in amounts if amount is not None)


def class_parts(name: str) -> dict[str, int] | None:
    """The amounts that a shared class's name tells, by field of :class:`~vmqos.extra_specs.CacheRequest`.

    :returns: ``None`` if a part of the name is none of ours, or is there twice.
    """
    amounts: dict[str, int] = {}
    for part in name.split("-"):
        found = _PART.fullmatch(part)
        if found is None or _WORDS[found[1]].field in amounts:
            return None
        amounts[_WORDS[found[1]].field] = int(found[2])
    return amounts


def class_of(name: str) -> CacheRequest:
    """What the shared class of that name grants.

    :param name: such as ``ways4``, ``code1-data3``, ``ways4-mb50`` or ``mb50``.
    :raises ValueError: if there is no such class; the message tells why.
    """
    amounts = class_parts(name)
    if amounts is None:
        words = ", ".join(f"{word}NUMBER" for word in _WORDS)
        raise ValueError(f"{name!r} names no shared class: its parts are {words}, each once, joined by '-'")
    specs = {key.name: str(amounts[key.field]) for key in _WORDS.values() if key.field in amounts}
    if extra_specs.WAYS.name in specs or extra_specs.CODE_WAYS.name in specs:
        specs[extra_specs.POLICY.name] = CachePolicy.SHARED.value
    try:
        request = extra_specs.parse_strict(specs)
    except InvalidExtraSpecs as error:
        raise ValueError(f"{name!r} names no shared class: {error}") from error
    shared = shared_class(request) if request is not None else None
    if shared is None:
        raise ValueError(f"{name!r} names no shared class: a VM with that promise has a control group of its own")
    return shared


def shared_resource(request: CacheRequest) -> str | None:
    """The resource class of the promise's shared class; ``None`` where a VM gets a control group of its own."""
    shared = shared_class(request)
    return None if shared is None else class_resource(shared)


def class_resource(shared: CacheRequest) -> str:
    """The resource class of a shared class.

    :param shared: as :func:`shared_class` returns it.
    """
    return LLC_SHARED + class_name(shared).upper().replace("-", "_")


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


def as_required(traits: Iterable[str]) -> dict[str, str]:
    """The extra specs by which a flavor requires these traits of the providers that its resources are taken from."""
    return {_TRAIT + trait: _REQUIRED for trait in sorted(traits)}


def requiring(specs: Mapping[str, str]) -> dict[str, str]:
    """Those of a flavor's extra specs by which it requires traits of vmqos in its un-numbered request group."""
    return {_TRAIT + trait: _REQUIRED for trait in TRAITS if specs.get(_TRAIT + trait) == _REQUIRED}


def required(specs: Mapping[str, str]) -> frozenset[str]:
    """The traits of vmqos that a flavor requires in its un-numbered request group."""
    return frozenset(key.removeprefix(_TRAIT) for key in requiring(specs))


def asking(specs: Mapping[str, str]) -> dict[str, str]:
    """Those of a flavor's extra specs by which it asks Placement for the resource classes of vmqos.

    The granular forms (``resources1:``, ``resources_CACHE:``) are among them.
    """
    return {
        key: value for key, value in specs.items() if (found := _ASKED.fullmatch(key)) and is_resource_class(found[2])
    }


def is_resource_class(name: str) -> bool:
    """Whether a resource class is one of vmqos."""
    return name in CLASSES or name.startswith(LLC_SHARED)


def asked(specs: Mapping[str, str]) -> dict[str, int]:
    """How much a flavor's extra specs ask Placement for, by resource class, all request groups together.

    An amount that Nova would ignore, because it is no number, asks for nothing; neither does 0.
    """
    total: dict[str, int] = {}
    for key, value in asking(specs).items():
        name = key.partition(":")[2]
        if _AMOUNT.fullmatch(value) and int(value):
            total[name] = total.get(name, 0) + int(value)
    return total
