# SPDX-License-Identifier: Apache-2.0
"""What the way map shows: the agent's caches, groups and VMs as named and ordered lines. Pure."""

from __future__ import annotations

import enum
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vmqos.cli.show import marks, units
from vmqos.cli.show.safe_text import distinct_names, neutralise
from vmqos.group_names import CLASS_PREFIX, LOCK_PREFIX
from vmqos.local_api import contract

_LETTERS = string.ascii_uppercase + string.ascii_lowercase.replace("x", "")
"""Of VMs: the capital ones first. An x is pseudo-locked memory."""
_DIGITS = "123456789"
_LOCKED = "pseudo-locked"
COLOURS = 12
"""How many colours there are for VMs."""
_MOST_APART = 4
"""Caches of one level that are drawn one by one, alike or not: a machine with more has them by the dozen."""


class Kind(enum.Enum):
    """What a line of the map stands for, in the order they are drawn."""

    PLANNED = 0
    VM = 1
    CLASS = 2
    LOCKED = 3
    FOREIGN = 4
    DEFAULT = 5
    NOBODY = 6
    IO = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the map.

    :ivar symbol: the character in its cells; a VM's and a class's is the same on every cache.
    :ivar label: its name, safe for a terminal.
    :ivar mask: its ways, bit 0 being way 0.
    :ivar colour: a VM's colour, a number from 0 up to :data:`COLOURS`.
    :ivar limit: the memory bandwidth that it may have, such as ``50 %``; empty where it has no limit.
    """

    kind: Kind
    symbol: str
    label: str
    mask: int
    colour: int = 0
    limit: str = ""


@dataclass(frozen=True, slots=True)
class CacheMap:
    """Everything the picture of one cache shows, or of several that look the same.

    :ivar ids: the caches' ids.
    :ivar way_bytes: the size of one way in bytes; ``None`` where the kernel does not tell.
    :ivar cpus: the CPUs that use the cache, as a list such as ``0-3,8``.
    :ivar shareable: the mask of the ways that I/O devices fill too.
    :ivar free_ways: ways that could be promised exclusively now; ``None`` where that is not the question.
    :ivar warnings: promises that are broken on this cache.
    :ivar remarks: what the picture leaves out.
    """

    resource: str
    ids: tuple[int, ...]
    ways: int
    way_bytes: int | None
    cpus: str
    shareable: int
    free_ways: int | None
    largest_free_run: int
    rows: tuple[Row, ...]
    warnings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def build(
    caches: Sequence[contract.Cache],
    vms: Sequence[contract.Vm],
    planned: Mapping[str, str] | None = None,
) -> list[CacheMap]:
    """Name and order what the caches hold. Where there are many, those that look the same become one picture.

    :param vms: the running VMs, for their names, the classes they are in, and the caches they have ways on.
    :param planned: masks of L3, by cache id, that a planned VM would get; drawn first.
    """
    names = _names(caches, vms)
    maps = [_build_one(cache, vms, names, planned) for cache in caches]
    levels = dict.fromkeys(one.resource for one in maps)
    return [one for level in levels for one in _folded([one for one in maps if one.resource == level])]


def _folded(maps: Sequence[CacheMap]) -> list[CacheMap]:
    """The maps of one level; caches that look the same become one map."""
    if len(maps) <= _MOST_APART:
        return list(maps)
    alike: dict[CacheMap, list[CacheMap]] = {}
    for one in maps:
        alike.setdefault(replace(one, ids=(), cpus=""), []).append(one)
    return [
        replace(
            found[0],
            ids=tuple(cache for one in found for cache in one.ids),
            cpus=units.number_list(cpu for one in found for cpu in units.parse_number_list(one.cpus)),
        )
        for found in alike.values()
    ]


@dataclass(frozen=True, slots=True)
class _Names:
    """How each group of ours is called and marked, on all caches alike; by the group's name."""

    labels: Mapping[str, str]
    symbols: Mapping[str, str]
    colours: Mapping[str, int]


def _names(caches: Sequence[contract.Cache], vms: Sequence[contract.Vm]) -> _Names:
    groups = {group["name"]: group for cache in caches for group in cache["groups"]}
    known = distinct_names(vms)
    labels: dict[str, str] = {}
    for name, group in groups.items():
        if group["owner"] == "vm":
            called = known.get(group["vm"] or "") or neutralise(group["vm_name"] or "")
            labels[name] = called or f"gone: {neutralise(name)}"
        elif group["owner"] == "class":
            members = sum(vm["group"] == name for vm in vms)
            title = neutralise(name.removeprefix(CLASS_PREFIX))
            labels[name] = f"class {title}, {members} VM{'' if members == 1 else 's'}"
    # The agent tells the VMs in the order in which they started. The group of a VM that it does not tell comes last.
    arrived = dict.fromkeys(vm["group"] for vm in vms)
    came = [*(name for name in arrived if name in groups), *sorted(groups.keys() - arrived.keys())]
    of_vms = [name for name in came if groups[name]["owner"] == "vm"]
    of_classes = [name for name in came if groups[name]["owner"] == "class"]
    letters = marks.allot(of_vms, len(string.ascii_uppercase))
    symbols = {name: _LETTERS[number % len(_LETTERS)] for name, number in letters.items()}
    digits = marks.allot(of_classes, len(_DIGITS))
    symbols |= {name: _DIGITS[number % len(_DIGITS)] for name, number in digits.items()}
    colours = marks.allot(of_vms, COLOURS)
    return _Names(labels, symbols, {name: number % COLOURS for name, number in colours.items()})


def _build_one(
    cache: contract.Cache, vms: Sequence[contract.Vm], names: _Names, planned: Mapping[str, str] | None
) -> CacheMap:
    strangers = _strangers(cache, vms)
    shown = [group for group in cache["groups"] if group["name"] not in strangers and not _is_dull(group, cache)]
    whole = [(_row(group, cache, names), group) for group in shown]
    # The most particular first; VMs as a staircase.
    whole.sort(key=lambda pair: (pair[0].kind.value, -pair[0].mask.bit_length(), pair[0].label))
    rows = [part for row, group in whole for part in _parts(row, group)]
    every = units.parse_mask(cache["cbm_mask"])
    held = 0
    for group in cache["groups"]:
        held |= units.parse_mask(group["mask"])
    marks = []
    reserved = units.parse_mask(cache.get("reserved", "0")) & ~held
    if reserved:
        marks.append(Row(Kind.NOBODY, "-", "reserved", reserved))
    if every & ~held & ~reserved:
        marks.append(Row(Kind.NOBODY, "-", "no group's", every & ~held & ~reserved))
    marks.sort(key=lambda row: (-row.mask.bit_length(), row.label))
    shareable = units.parse_mask(cache["shareable_bits"])
    if shareable:
        marks.append(Row(Kind.IO, "~", "also filled by I/O", shareable))
    if planned is not None and cache["resource"] == "L3" and str(cache["id"]) in planned:
        rows.insert(0, Row(Kind.PLANNED, "+", "the planned VM", units.parse_mask(planned[str(cache["id"])])))
    return CacheMap(
        resource=neutralise(cache["resource"]),
        ids=(cache["id"],),
        ways=cache["ways"],
        way_bytes=cache["way_bytes"],
        cpus=neutralise(cache["cpus"]),
        shareable=shareable,
        free_ways=cache["free_ways"] if planned is None else None,
        largest_free_run=cache["largest_free_run"],
        rows=(*rows, *marks),
        warnings=tuple(_overlaps([row for row, _ in whole])),
        remarks=tuple(_remarks(cache, strangers, names)),
    )


def _strangers(cache: contract.Cache, vms: Sequence[contract.Vm]) -> dict[str, bool]:
    """The VMs' groups that have no ways of their own on this cache, and whether they have some on others.

    Such a group follows the default one here.
    """
    of_l3 = cache["resource"] == "L3"
    masks = {vm["group"]: vm["masks"] if of_l3 else vm.get("l2_masks", {}) for vm in vms if vm["group"]}
    return {
        group["name"]: bool(masks[group["name"]])
        for group in cache["groups"]
        if group["owner"] == "vm" and group["name"] in masks and str(cache["id"]) not in masks[group["name"]]
    }


def _is_dull(group: contract.CacheGroup, cache: contract.Cache) -> bool:
    """Whether a group has nothing of its own in an L2: it may fill just the ways that the default group may fill."""
    default = next((one["mask"] for one in cache["groups"] if one["owner"] == "default"), None)
    return cache["resource"] != "L3" and group["owner"] in ("class", "foreign") and group["mask"] == default


def _remarks(cache: contract.Cache, strangers: Mapping[str, bool], names: _Names) -> Iterator[str]:
    """What the picture leaves out; in an L2 that is most VMs."""
    if cache["resource"] != "L3":
        return
    away = sorted(names.labels[name] for name, has_ways in strangers.items() if has_ways)
    if away:
        yield f"VMs with ways on other caches only: {', '.join(away)}"
    limits = {group["name"]: limit for group in cache["groups"] if (limit := _limit(group, cache))}
    inside = sorted(
        names.labels[name] + (f" (at most {limits[name]})" if name in limits else "")
        for name, has_ways in strangers.items()
        if not has_ways
    )
    if inside:
        yield f"VMs in the default group's ways: {', '.join(inside)}"


def _row(group: contract.CacheGroup, cache: contract.Cache, names: _Names) -> Row:
    mask, name, limit = units.parse_mask(group["mask"]), group["name"], _limit(group, cache)
    if group["mode"] == _LOCKED:
        return Row(Kind.LOCKED, "x", _lock_label(name), mask)
    if group["owner"] == "default":
        return Row(Kind.DEFAULT, "=", "default group", mask, limit=limit)
    if group["owner"] == "foreign":
        return Row(Kind.FOREIGN, "#", neutralise(name), mask, limit=limit)
    if group["owner"] == "class":
        return Row(Kind.CLASS, names.symbols[name], names.labels[name], mask, limit=limit)
    return Row(Kind.VM, names.symbols[name], names.labels[name], mask, names.colours[name], limit)


def _lock_label(name: str) -> str:
    """The label of a lock. Where its group is gone, the agent gives a name in parentheses, which is no group's name."""
    title = "group gone" if name.startswith("(") else neutralise(name.removeprefix(LOCK_PREFIX))
    return f"lock {title}"


def _limit(group: contract.CacheGroup, cache: contract.Cache) -> str:
    limit = group.get("bandwidth")
    return "" if limit is None else f"{limit} {neutralise(cache.get('bandwidth_unit') or '')}"


def _parts(row: Row, group: contract.CacheGroup) -> list[Row]:
    """A line for code and one for data, where their ways are not the same."""
    code, data = group.get("code_mask"), group.get("data_mask")
    if code is None or data is None or code == data:
        return [row]
    parts = [
        replace(row, label=f"{row.label}, {what}", mask=units.parse_mask(mask))
        for what, mask in (("data", data), ("code", code))
    ]
    return sorted(parts, key=lambda part: -part.mask.bit_length())


def _overlaps(rows: Sequence[Row]) -> Iterator[str]:
    """The exclusive VMs whose ways another group may fill: what must never be."""
    for index, row in enumerate(rows):
        for other in rows[index + 1 :]:
            both = row.mask & other.mask
            if row.kind is Kind.VM and both:
                yield f"{row.label} is not alone: {other.label} may fill its way {units.way_list(both)} too"
