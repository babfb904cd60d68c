# SPDX-License-Identifier: Apache-2.0
"""What the control groups hold and grant, from the text of their ``schemata`` and ``size`` files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vmqos.group_names import Owner, owner_of
from vmqos.resctrl import schemata
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthUnit
from vmqos.telemetry.model import PolicyName

_L3 = ("L3", "L3CODE", "L3DATA")
_NOTHING = CapacityBitmask()


@dataclass(frozen=True, slots=True)
class Held:
    """What a control group holds of the caches.

    :ivar masks: its L3 ways by cache id; with code and data apart, the ways of both.
    :ivar sizes: the same in bytes; empty where resctrl does not say.
    :ivar parts: how many of its L3 ways code may fill, and how many data; empty where both fill the same ones.
    :ivar l2: its L2 ways by cache id.
    :ivar throttles: its ``MB`` values by cache id.
    """

    masks: Mapping[int, CapacityBitmask] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    parts: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    l2: Mapping[int, CapacityBitmask] = field(default_factory=dict)
    throttles: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Granted:
    """What a VM's control group gives it; see :class:`vmqos.telemetry.model.VmReading`."""

    ways: Mapping[int, int] = field(default_factory=dict)
    allocated_bytes: int | None = None
    parts: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    l2_ways: Mapping[int, int] = field(default_factory=dict)
    limits: Mapping[int, int] = field(default_factory=dict)


def parse(schemata_text: str, size_text: str) -> Held:
    """Read a group's two files.

    With CDP, ``size`` counts ways for code and for data apart; a way that is for both is one way all the same.

    :raises vmqos.resctrl.exceptions.ResctrlError: if one of the texts is not what the kernel writes.
    """
    values, sizes = schemata.parse(schemata_text), schemata.parse(size_text)
    ways = schemata.code_and_data(values, 3)
    masks = {cache: code | data for cache, (code, data) in ways.items()}
    return Held(
        masks,
        _sizes(values, sizes, masks),
        {cache: (code.count, data.count) for cache, (code, data) in ways.items() if code != data},
        {cache: code | data for cache, (code, data) in schemata.code_and_data(values, 2).items()},
        schemata.numbers_of(values, "MB"),
    )


def _sizes(
    values: Mapping[str, Mapping[int, str]],
    sizes: Mapping[str, Mapping[int, str]],
    masks: Mapping[int, CapacityBitmask],
) -> dict[int, int]:
    """Bytes by cache: the size of a way, of whatever resource has one, times the ways."""
    found = {}
    for resource in _L3:
        for cache, text in sizes.get(resource, {}).items():
            ways = CapacityBitmask.parse(values.get(resource, {}).get(cache, "0")).count
            if ways and text.isdecimal():
                found[cache] = int(text) * masks[cache].count // ways
    return found


def granted(policy: PolicyName | None, held: Held, default: Held, unit: BandwidthUnit | None = None) -> Granted:
    """What a VM's control group gives it.

    Where an exclusive VM can't run, its group has no ways of its own but follows the default group; so does a class
    whose VMs were promised no L2 ways.

    :param policy: ``None`` where no ways were promised.
    :param held: what the control group holds.
    :param unit: of the ``MB`` values; ``None`` where none is a limit.
    """
    limits = unit.limits(held.throttles) if unit is not None else {}
    if policy is None:
        return Granted(limits=limits)
    masks = {
        cache: mask
        for cache, mask in held.masks.items()
        if policy == "shared" or not mask & default.masks.get(cache, _NOTHING)
    }
    l2 = {
        cache: mask
        for cache, mask in held.l2.items()
        if mask != default.l2.get(cache) and (policy == "shared" or not mask & default.l2.get(cache, _NOTHING))
    }
    known = masks and masks.keys() <= held.sizes.keys()
    return Granted(
        {cache: mask.count for cache, mask in masks.items()},
        sum(held.sizes[cache] for cache in masks) if known else None,
        {cache: parts for cache, parts in held.parts.items() if cache in masks},
        {cache: mask.count for cache, mask in l2.items()},
        limits,
    )


def free(every: Mapping[int, CapacityBitmask], held: Mapping[str, Held]) -> dict[int, int]:
    """How many ways of each cache are the default group's or no group's.

    What a group of ours has in common with the default group is no more than a share in that pool; every way of a
    foreign group is taken.

    :param every: all ways of each cache.
    :param held: what each control group holds, by its name.
    """
    pool = held[""].masks
    left = dict(every)
    for name, group in held.items():
        for cache, mask in group.masks.items() if name else ():
            taken = mask - pool.get(cache, _NOTHING) if owner_of(name) in (Owner.VM, Owner.CLASS) else mask
            left[cache] = left.get(cache, _NOTHING) - taken
    return {cache: mask.count for cache, mask in left.items()}


def cache_bytes(ways: Mapping[int, int], default: Held) -> dict[int, int]:
    """The size of each cache, from what the default group has of it."""
    return {
        cache: default.sizes[cache] * count // default.masks[cache].count
        for cache, count in ways.items()
        if cache in default.sizes and default.masks[cache]
    }
