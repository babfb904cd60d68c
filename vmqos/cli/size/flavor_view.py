# SPDX-License-Identifier: Apache-2.0
"""What sizing a flavor looks like: the question before it, its progress, what each VM needs, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from vmqos.cli.show import tables, units
from vmqos.cli.show.safe_text import display_name, distinct_names, neutralise
from vmqos.cli.show.terminal import Terminal, wrapped
from vmqos.cli.size import view
from vmqos.cli.size.flavor import INTERRUPTED, Chosen, FlavorSized
from vmqos.cli.size.stepping import LONGEST, Room, Sized, is_in_class
from vmqos.local_api import contract

TITLES = ("VM", "Has", "Needs", "Curve, or why there is none")

FAILED, SIGINT = 1, 130
"""The exit statuses where no VM was sized, or not all that were to be, beside those of a VM; and of Ctrl-C."""


def question(chosen: Chosen) -> str:
    """What will be done, in sentences."""
    names, rooms = distinct_names(chosen.vms), chosen.rooms
    whole = units.duration(LONGEST * len(rooms))
    if all(room.base for room in rooms):
        will = "have more ways than they have"
        will = f"{will} for {rooms[0].part}" if rooms[0].part else will
    else:
        first = min(room.first for room in rooms)
        will = f"{'leave their class and ' if any(room.is_in_class for room in rooms) else ''}have ways for themselves"
        will = f"{will}, {first} and more"
    return (
        f"VMs of flavor {neutralise(chosen.flavor)} will {will}, one VM after the other, for "
        f"{whole} at most in all: {', '.join(names[room.vm['uuid']] for room in rooms)}. The ways are taken "
        f"from those that are free. {view.meanwhile(rooms)}No VM gets less than its flavor promises, and the ways are "
        "given back, however this command ends.\n"
    )


def progress(room: Room, left: int, seconds: float, is_bound: bool) -> str:
    """Which VM comes next, and for how long it goes on.

    :param left: how many VMs are left, and ``seconds`` how long they take.
    :param is_bound: whether they may take less.
    """
    how_long = f"{units.duration(seconds)} at most" if is_bound else f"about {units.duration(seconds)}"
    return f"{left} of the flavor's VMs left, {how_long}; {display_name(room.vm)} is next.\n"


def status(sized: FlavorSized) -> int:
    """The exit status."""
    if sized.ended == INTERRUPTED:
        return SIGINT
    return FAILED if sized.ended or sized.found is None else view.status(sized.found)


def fields(sized: FlavorSized) -> dict[str, Any]:
    """What came of it, for programs; what is not known is ``None``."""
    found, chosen = sized.found, sized.chosen
    room = sized.sized[0].room if sized.sized else None
    return {
        "flavor": chosen.flavor,
        "ways": found and found.knee,
        "at_least": found and found.is_least,
        "has": found and _base(sized),
        "first": found and max(one.room.first for one in sized.sized),
        "part": room and room.part,
        "other_ways": room.other if room and room.part else None,
        "more": found and found.knee - _base(sized) + (0 if _base(sized) else sized.other),
        "fewer_do": found and found.fewer,
        "running": len(chosen.vms),
        "cost": _by_name(sized.cost),
        "free": _by_name(chosen.free),
        "ended": sized.ended,
        "counted": found and found.is_counted,
        "steady": found and found.is_steady,
        "extra_spec": " ".join(view.specs(found.knee, room)) if found and room else None,
        "command": (view.command(found.knee, room) if any(sized.cost.values()) else "") if found and room else None,
        "seconds": sized.seconds,
        "vms": [view.fields(one) for one in sized.sized],
        "not_sized": [{"vm": uuid, "reason": reason} for uuid, reason in sized.refused.items()],
    }


def flat(told: dict[str, Any]) -> dict[str, Any]:
    """The fields for formats that have no nested values."""
    return told | {
        "cost": _pairs(told["cost"]),
        "free": _pairs(told["free"]),
        "vms": _pairs({one["vm"]: one["ways"] for one in told["vms"]}),
        "not_sized": "; ".join(f"{one['vm']}: {one['reason']}" for one in told["not_sized"]),
    }


def draw(sized: FlavorSized, screen: Terminal) -> RenderableType:
    """How many ways the flavor needs, what each VM does with how many, and what to do."""
    table = tables.draw(TITLES, list(_rows(sized)), screen, screen.room)
    return Group(*wrapped(_verdict(sized), screen, 0), Text(), table, Text(), *_advice(sized, screen))


def _verdict(sized: FlavorSized) -> Iterator[Text]:
    found, chosen = sized.found, sized.chosen
    name = neutralise(chosen.flavor)
    if found is None:
        yield Text(f"How many ways flavor {name} needs is not known: none of its VMs was sized.", style="bold yellow")
    else:
        flavor = f"Flavor {name}" if found.is_counted else f"flavor {name}"
        rooms = [one.room for one in sized.sized]
        yield from view.needs(flavor, rooms, found, "each VM that was sized")
        whom = f"each of {found.vms} VMs; fewer would do for {found.fewer} of them" if found.vms > 1 else "one VM"
        yield Text(f"That is nearly as good as all that were tried, for {whom}.")
        if left_out := len(sized.sized) - found.vms:
            yield Text(f"VMs that did other work meanwhile, and don't count: {left_out}.")
        if any(one.left_unseen for one in sized.sized):
            yield Text(f"Of each: {view.LEFT_BEHIND[0].lower()}{view.LEFT_BEHIND[1:]}")
    if left := len(chosen.vms) - len(sized.sized) - len(sized.refused):
        why = f"Not sized, for it ended early ({neutralise(sized.ended)})" if sized.ended else "Not tried, for --vms"
        yield Text(f"{why}: {left} of its {len(chosen.vms)} VMs here.", style="bold yellow" if sized.ended else "")


def _rows(sized: FlavorSized) -> Iterator[tuple[Any, ...]]:
    names = distinct_names(sized.chosen.vms)
    for one in sized.sized:
        yield names[one.room.vm["uuid"]], one.room.base or _promised(one.room.vm), _needs(one), _curve(one)
    promised = {vm["uuid"]: _promised(vm) for vm in sized.chosen.vms}
    for uuid, reason in sized.refused.items():
        yield names[uuid], promised[uuid], "-", reason


def _promised(vm: contract.Vm) -> int | str:
    if not vm["ways_requested"]:
        return "-"
    return f"{vm['ways_requested']} shared" if is_in_class(vm) else vm["ways_requested"]


def _needs(one: Sized) -> str:
    return f"{one.found.knee}{' at least' if one.found.is_least else ''}"


def _curve(one: Sized) -> str:
    parts = ", ".join(f"{100 * part:.1f} % with {ways}" for ways, part in one.found.curve.items())
    other_work = "" if one.found.is_steady else "; it did other work meanwhile"
    return f"{view.does(one.found)} {parts}{other_work}"


def _advice(sized: FlavorSized, screen: Terminal) -> Iterator[Text]:
    found, chosen = sized.found, sized.chosen
    if found is not None:
        if any(sized.cost.values()):
            parts = [_change(cache, more, chosen.free.get(cache, 0)) for cache, more in sized.cost.items() if more]
            lines = [
                f"For all {len(chosen.vms)} VMs of the flavor here, that {'; '.join(parts)}.",
                *view.fewer(found.knee, [one.room for one in sized.sized]),
                "This gives them to new VMs. Those that run get them once resized to another flavor with them:",
            ]
            told = view.command(found.knee, sized.sized[0].room)
        else:
            lines = [f"More would bring them little. {view.FEWER}", "The extra spec that it needs, and has:"]
            told = " ".join(view.specs(found.knee, sized.sized[0].room))
        yield from wrapped(map(Text, lines), screen, 0)
        yield view.to_copy(told)
    if not sized.ended:
        yield Text(f"After {units.duration(sized.seconds)}, all have the ways again that they had.", style="dim")


def _change(cache: int, more: int, free: int) -> str:
    what = f"costs {more} more" if more > 0 else f"frees {-more}"
    return f"{what} on L3 cache {cache}, where {free} {'is' if free == 1 else 'are'} free now"


def _base(sized: FlavorSized) -> int:
    """How many ways the flavor has: the most that a VM that was sized has."""
    return max((one.room.base for one in sized.sized), default=0)


def _by_name(ways: Mapping[int, int]) -> dict[str, int]:
    """By cache, as JSON has keys."""
    return {str(cache): number for cache, number in ways.items()}


def _pairs(values: Mapping[str, int]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())
