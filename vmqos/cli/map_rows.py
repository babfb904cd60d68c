# SPDX-License-Identifier: Apache-2.0
"""What the way map shows: the agent's caches, groups and VMs as named and ordered lines. Pure."""

from __future__ import annotations

import enum
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmqos.cli import contract, units
from vmqos.cli.safe_text import distinct_names, neutralise

_LETTERS = string.ascii_uppercase + string.ascii_lowercase
_DIGITS = "123456789"
_CLASS_PREFIX = "vmqos.shared-"


class Kind(enum.Enum):
    """What a line of the map stands for, in the order they are drawn."""

    PLANNED = 0
    VM = 1
    CLASS = 2
    FOREIGN = 3
    DEFAULT = 4
    NOBODY = 5
    IO = 6


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the map.

    :ivar symbol: the character in its cells; a VM's and a class's is the same on every cache.
    :ivar label: its name, safe for a terminal.
    :ivar mask: its ways, bit 0 being way 0.
    :ivar number: counts the VMs and the classes, for symbol and colour.
    """

    kind: Kind
    symbol: str
    label: str
    mask: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class CacheMap:
    """Everything the picture of one cache shows.

    :ivar way_bytes: the size of one way in bytes; ``None`` where the kernel does not tell.
    :ivar cpus: the CPUs that use the cache, as a list such as ``0-3,8``.
    :ivar shareable: the mask of the ways that I/O devices fill too.
    :ivar free_ways: ways that could be promised exclusively now; ``None`` where that is not the question.
    :ivar warnings: promises that are broken on this cache.
    :ivar remarks: what the picture leaves out.
    """

    resource: str
    id: int
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
    """Name and order what the caches hold.

    :param vms: the running VMs, for their names, the classes they are in, and the caches they have ways on.
    :param planned: masks, by cache id, that a planned VM would get; drawn first.
    """
    names = _names(caches, vms)
    return [_build_one(cache, vms, names, planned) for cache in caches]


@dataclass(frozen=True, slots=True)
class _Names:
    """How each group of ours is called and numbered, on all caches alike."""

    labels: Mapping[str, str]
    numbers: Mapping[str, int]


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
            title = neutralise(name.removeprefix(_CLASS_PREFIX))
            labels[name] = f"class {title}, {members} VM{'' if members == 1 else 's'}"
    numbers = {}
    for owner in ("vm", "class"):
        ours = [name for name, group in groups.items() if group["owner"] == owner]
        ours.sort(key=lambda name: (labels[name].casefold(), name))
        numbers.update({name: number for number, name in enumerate(ours)})
    return _Names(labels, numbers)


def _build_one(
    cache: contract.Cache, vms: Sequence[contract.Vm], names: _Names, planned: Mapping[str, str] | None
) -> CacheMap:
    elsewhere = {vm["group"] for vm in vms if vm["masks"] and str(cache["id"]) not in vm["masks"]}
    shown = [group for group in cache["groups"] if group["owner"] != "vm" or group["name"] not in elsewhere]
    hidden = [names.labels[group["name"]] for group in cache["groups"] if group not in shown]
    rows = [_row(group, names) for group in shown]
    every = units.parse_mask(cache["cbm_mask"])
    held = 0
    for group in cache["groups"]:
        held |= units.parse_mask(group["mask"])
    reserved = units.parse_mask(cache.get("reserved", "0")) & ~held
    if reserved:
        rows.append(Row(Kind.NOBODY, "-", "reserved", reserved))
    if every & ~held & ~reserved:
        rows.append(Row(Kind.NOBODY, "-", "no group's", every & ~held & ~reserved))
    shareable = units.parse_mask(cache["shareable_bits"])
    if shareable:
        rows.append(Row(Kind.IO, "~", "also filled by I/O", shareable))
    if planned is not None and str(cache["id"]) in planned:
        rows.append(Row(Kind.PLANNED, "+", "the planned VM", units.parse_mask(planned[str(cache["id"])])))
    rows.sort(key=lambda row: (row.kind.value, -row.mask.bit_length(), row.label))
    return CacheMap(
        resource=neutralise(cache["resource"]),
        id=cache["id"],
        ways=cache["ways"],
        way_bytes=cache["way_bytes"],
        cpus=neutralise(cache["cpus"]),
        shareable=shareable,
        free_ways=cache["free_ways"] if planned is None else None,
        largest_free_run=cache["largest_free_run"],
        rows=tuple(rows),
        warnings=tuple(_overlaps(rows)),
        remarks=(f"on other caches' CPUs only: {', '.join(sorted(hidden))}",) if hidden else (),
    )


def _row(group: contract.CacheGroup, names: _Names) -> Row:
    mask, name = units.parse_mask(group["mask"]), group["name"]
    if group["owner"] == "default":
        return Row(Kind.DEFAULT, "=", "default group", mask)
    if group["owner"] == "foreign":
        return Row(Kind.FOREIGN, "#", neutralise(name), mask)
    number = names.numbers[name]
    if group["owner"] == "class":
        return Row(Kind.CLASS, _DIGITS[number % len(_DIGITS)], names.labels[name], mask, number)
    return Row(Kind.VM, _LETTERS[number % len(_LETTERS)], names.labels[name], mask, number)


def _overlaps(rows: Sequence[Row]) -> Iterator[str]:
    """The exclusive VMs whose ways another group may fill: what must never be."""
    fillers = [row for row in rows if row.kind in (Kind.VM, Kind.CLASS, Kind.FOREIGN, Kind.DEFAULT)]
    for index, row in enumerate(fillers):
        for other in fillers[index + 1 :]:
            both = row.mask & other.mask
            if row.kind is Kind.VM and both:
                yield f"{row.label} is not alone: {other.label} may fill its way {units.way_list(both)} too"
