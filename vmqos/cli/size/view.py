# SPDX-License-Identifier: Apache-2.0
"""What sizing a VM looks like: the question before it, its progress, the curve, and what to do."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from rich.console import Group, RenderableType
from rich.text import Text

from vmqos import extra_specs
from vmqos.cli.show import units
from vmqos.cli.show.progress_bar import PhaseBar
from vmqos.cli.show.safe_text import display_name, neutralise
from vmqos.cli.show.terminal import Terminal, wrapped
from vmqos.cli.size.stepping import LONGEST, OTHER, SPECS, Part, Room, Sized
from vmqos.insight.advice import NEW, NO_FLAVOR
from vmqos.insight.flavor_size import FlavorSize
from vmqos.insight.size import ENOUGH, Point, Size

KNOWN, CHANGED, GUESSED = 0, 4, 5
"""The exit statuses: the misses were counted; the VM did other work meanwhile; its traffic had to do for its misses."""

FEWER = "Whether fewer would do is not known: no VM is tried with less than its flavor promises."
LEFT_BEHIND = "What it left in other ways it still finds there until other VMs take these, so it may need more."
"""Of a VM that had no ways of its own, or whose ways came to lie elsewhere."""

EXCLUSIVE = "hw:cache_policy=exclusive"

_LEAST_BAR = 10
_WIDEST = 100


class Progress(PhaseBar):
    """Tells on standard error how far it is: in a terminal by a bar, elsewhere by a line for each number of ways."""

    def __init__(self, stream: TextIO, room: Room) -> None:
        super().__init__(stream, room.most - room.first + 1)
        self._room = room

    def report(self, ways: int, part: float) -> None:
        """Show with how many ways the VM is watched, and which part of the longest time for that has passed."""
        self.show(f"{display_name(self._room.vm)} with {count(ways, self._room.part)}", ways - self._room.first + part)


def question(room: Room) -> str:
    """What will be done, in sentences."""
    if room.base:
        will = f"will have more than its {count(room.base, room.part)}: up to {room.most}"
    elif room.is_in_class:
        will = f"will leave its class and have {count(room.first, room.part)} for itself, and up to {room.most}"
    else:
        will = f"will have {count(room.first)} for itself, and up to {room.most}"
    return (
        f"{display_name(room.vm)} ({neutralise(room.vm['uuid'])}) {will}, one way after the other, for "
        f"{LONGEST / 60:g} minutes at most in all. They are taken from those that are free. {stays(room)}"
        f"{meanwhile([room])}No VM "
        "gets less than its flavor promises, and the ways are given back, however this command ends.\n"
    )


def stays(room: Room) -> str:
    """A sentence on the ways that are not tried, where code and data have ways apart; else empty."""
    return f"Its {count(room.other, OTHER[room.part])} stay as they are. " if room.part else ""


def meanwhile(rooms: Sequence[Room]) -> str:
    """Which VMs may be slower while these are tried, one after the other, in sentences; empty where none may."""
    if not (without := [room for room in rooms if not room.base]):
        return ""
    found = []
    if fewer := [room for room in without if room.may_fill_fewer]:
        who = "It" if len(rooms) == 1 else "A VM that is promised no ways"
        found.append(
            f"{who} may fill more than {_range([room.first for room in fewer])} now, so it may be slower then."
        )
    if any(room.is_in_class for room in without):
        found.append("The other VMs of its class keep theirs.")
    ways = [number for room in without for number in (room.first, room.most)]
    found.append(f"The other VMs without ways of their own have {_range(ways)} fewer to fill meanwhile.")
    return "".join(f"{sentence} " for sentence in found)


def _range(ways: Sequence[int]) -> str:
    return count(ways[0]) if len({*ways}) == 1 else f"{min(ways)} to {count(max(ways))}"


def status(found: Size | FlavorSize) -> int:
    """The exit status."""
    if not found.is_counted:
        return GUESSED
    return KNOWN if found.is_steady else CHANGED


def fields(sized: Sized) -> dict[str, Any]:
    """What came of it, for programs; what is not known is ``None``."""
    found, room = sized.found, sized.room
    return {
        "vm": room.vm["uuid"],
        "ways": found.knee,
        "at_least": found.is_least,
        "has": room.base,
        "first": room.first,
        "part": room.part,
        "other_ways": room.other if room.part else None,
        "more": _more(sized),
        "free": room.free,
        "tried": sized.tried,
        "not_counted": list(sized.not_counted),
        "ended": sized.ended,
        "counted": found.is_counted,
        "steady": found.is_steady,
        "extra_spec": " ".join(specs(found.knee, room)),
        "command": command(found.knee, room, NEW) if _more(sized) else "",
        "seconds": sized.seconds,
        "held_before": _known(sized.held_before),
        "curve": [
            {
                "ways": one.ways,
                "missed": found.curve[one.ways] if found.is_counted else None,
                "traffic": _known(one.traffic),
                "traffic_part": None if found.is_counted else found.curve[one.ways],
                "slower": found.slower.get(one.ways),
                "held": _known(one.held),
            }
            for one in sized.points
        ],
    }


def flat(told: dict[str, Any]) -> dict[str, Any]:
    """The fields for formats that have no nested values."""
    parts = {one["ways"]: one["missed"] if told["counted"] else one["traffic_part"] for one in told["curve"]}
    return told | {"curve": " ".join(f"{ways}={part:.4f}" for ways, part in parts.items())}


def draw(sized: Sized, screen: Terminal) -> RenderableType:
    """How many ways it needs, the curve, and what to do."""
    return Group(*wrapped(_verdict(sized), screen, 0), Text(), *_curve(sized, screen), Text(), *_advice(sized, screen))


def needs(name: str, rooms: Sequence[Room], found: Size | FlavorSize, who: str) -> Iterator[Text]:
    """How many ways a VM or a flavor needs, and how far that is to be trusted.

    :param rooms: what was tried, on at least one VM.
    :param who: whose work changed, if it did.
    """
    base, first = (max(getattr(room, field) for room in rooms) for field in ("base", "first"))
    part, other = rooms[0].part, max(room.other for room in rooms)
    beside = f", beside {count(other, OTHER[part])}" if part else ""
    if found.knee == first:
        has = "has" if first == base else "began with"
        fewest = f"{count(first, part)}, the fewest that count" if any(room.is_cut for room in rooms) else ""
        told = f"needs no more than {fewest or f'the {count(first, part)} that it {has}'}{beside}."
    else:
        told = f"needs {count(found.knee, part)}{' at least' if found.is_least else ''}{beside}."
    told = f"{name} {told}"
    if found.is_counted:
        yield Text(told, style="bold")
    else:
        yield Text(f"A guess: {told}", style="bold yellow")
        yield Text(
            "Nothing counts misses of the L3 here, so the traffic with memory stands for them. That says where the "
            "curve falls, and not how near to 0 it is."
        )
    if not found.is_steady:
        yield Text(
            f"Do not trust this: {who} did other work meanwhile. References to the cache for each instruction "
            "changed. Try again while the work stays the same all the time.",
            style="bold yellow",
        )


def _verdict(sized: Sized) -> Iterator[Text]:
    found, room = sized.found, sized.room
    of_what = "of its references" if found.is_counted else f"of its traffic with {count(room.first, room.part)}"
    yield from needs(display_name(room.vm), [room], found, "the VM")
    parts = {ways: f"{100 * found.curve[ways]:.1f} %" for ways in (found.knee, sized.tried)}
    beside = f", and {parts[sized.tried]} with {sized.tried}" if sized.tried != found.knee else ""
    yield Text(f"With {count(found.knee, room.part)} it {does(found)} {parts[found.knee]} {of_what}{beside}.")
    if found.is_least:
        yield Text(f"The last way spared it more than {100 * ENOUGH:g} of 100, and no further one was tried.")
    if sized.ended:
        yield Text(f"No more than {count(sized.tried)} were tried: {neutralise(sized.ended)}.")
    if room.part:
        what = OTHER[room.part]
        yield Text(f"Misses of {what} are in it, too, and the same with each. '--part {what}' tries ways for {what}.")
    if sized.not_counted:
        ways = _range(sized.not_counted)
        yield Text(f"With {ways} it went on finding what it had left in others. They do not count.")
    if told := f"{'' if room.base else _held(sized)}{LEFT_BEHIND if sized.left_unseen else ''}".rstrip():
        yield Text(told)


def _held(sized: Sized) -> str:
    """What a VM held before, beside what it holds in the ways that it needs; empty where that is not known."""
    now = next(one.held for one in sized.points if one.ways == sized.found.knee)
    if not (math.isfinite(now) and math.isfinite(sized.held_before)):
        return ""
    return f"It held {units.size(sized.held_before)} before, and {units.size(now)} with {count(sized.found.knee)}. "


def _curve(sized: Sized, screen: Terminal) -> list[Text]:
    """A bar for each number of ways: what it misses, or moves."""
    found = sized.found
    rows = [(one.ways, found.curve[one.ways], _value(sized, one)) for one in sized.points]
    return bars("Misses" if found.is_counted else "Traffic", rows, found.knee, screen)


def bars(title: str, rows: Sequence[tuple[int, float, str]], knee: int, screen: Terminal) -> list[Text]:
    """A bar for each number of ways.

    :param title: what the bars are of.
    :param rows: ways, how long the bar is beside the others, and what is told of it.
    :param knee: the number of ways that is marked.
    """
    first = "Ways"
    most = max(value for _, value, _ in rows)
    longest = max(len(told) for _, _, told in rows)
    room = max(min(screen.width, _WIDEST) - len(first) - longest - 8, _LEAST_BAR)
    block, here = screen.glyph("█", "#"), screen.glyph("◀", "<")
    lines = [Text(f"{first}  {title}", style="dim")]
    for ways, value, told in rows:
        bar = block * (max(1, round(value / most * room)) if value else 0)
        lines.append(
            Text.assemble(
                (f"{ways:>{len(first)}}", "bold" if ways == knee else ""),
                "  ",
                (f"{bar:<{room}}", "green" if ways >= knee else "yellow"),
                f"  {told:<{longest}}",
                (f" {here}" if ways == knee else "", "bold"),
            )
        )
    return lines


def _value(sized: Sized, one: Point) -> str:
    found = sized.found
    told = f"{100 * found.curve[one.ways]:.1f} %"
    if not found.is_counted:
        return f"{units.size(one.traffic)}/s" if math.isfinite(one.traffic) else told
    slower = found.slower.get(one.ways)
    return told if slower is None else f"{told}, {slower:.2f} x as long"


def _advice(sized: Sized, screen: Terminal) -> Iterator[Text]:
    found, room, more = sized.found, sized.room, _more(sized)
    if more:
        caches = "each L3 cache that it runs on" if len(room.vm["masks"] or room.vm["caches"]) > 1 else "its L3 cache"
        what = f"{more} {'more ' if room.base else ''}{'way' if more == 1 else 'ways'}"
        lines = [
            f"That costs {what} on {caches}, of {room.free} that are free now.",
            *fewer(found.knee, [room]),
            "It gets them once it is resized to a copy of its flavor with them:",
        ]
        told = command(found.knee, room, NEW)
    else:
        stay = "1 way stays" if room.free == 1 else f"{room.free} ways stay"
        lines = [
            f"More would bring it little: {stay} free for others. {FEWER}{_unfilled(sized)}",
            "The extra spec that it needs, and has:",
        ]
        told = " ".join(specs(found.knee, room))
    yield from wrapped(map(Text, lines), screen, 0)
    yield to_copy(told)
    yield Text(f"After {units.duration(sized.seconds)}, it {_again(room)} again.", style="dim")


def _unfilled(sized: Sized) -> str:
    """A sentence on a VM that holds no more than fits in fewer ways than it has; empty of any other."""
    room, ways = sized.room, sized.found.knee
    held = next(one.held for one in sized.points if one.ways == ways)
    # What is not known compares as false.
    if not (ways > 1 and held <= room.bytes_in(ways - 1)):
        return ""
    fits = units.size(room.bytes_in(ways))
    return f" But it held {units.size(held)} of the {fits} that fit in its {count(ways, room.part)}, so fewer may do."


def _more(sized: Sized) -> int:
    """How many more ways the VM needs than it was promised for itself."""
    return sized.found.knee - sized.room.base + (0 if sized.room.base else sized.room.other)


def _again(room: Room) -> str:
    if room.base:
        return f"has its {count(room.base, room.part)}"
    return "is in its class" if room.is_in_class else "fills all that no VM has alone"


def fewer(knee: int, rooms: Sequence[Room]) -> list[str]:
    """A sentence where VMs may do with fewer ways than they began with, and were not promised those; else none."""
    first = max(room.first for room in rooms)
    if knee > first or first <= max(1, *(room.base for room in rooms)):
        return []
    if any(room.is_cut for room in rooms):
        return ["Whether fewer would do is not known: with fewer, what was left in other ways was found there."]
    return [f"Whether fewer would do is not known: none was tried with fewer than {first}."]


def does(found: Size) -> str:
    """What the curve of a VM is about."""
    return "misses" if found.is_counted else "moves"


def specs(ways: int, room: Room) -> list[str]:
    """The extra specs that promise a VM so many ways for itself, beside those that its flavor has."""
    return [f"{SPECS[room.part]}={ways}", *([EXCLUSIVE] if room.is_in_class else [])]


def command(ways: int, room: Room, copy: str = "") -> str:
    """What gives the flavor of a VM so many ways, and asks Placement for them.

    :param copy: what a copy of the flavor has behind its name, if it is the copy that is to have them.
    """
    options = {key.name: key.option for key in extra_specs.KEYS}
    given = [f"{options[name]} {value}" for name, _, value in (spec.partition("=") for spec in specs(ways, room))]
    flavor = (neutralise(room.vm["flavor"]) or NO_FLAVOR) + copy
    return f"vmqos flavor set {shlex.quote(flavor)} {' '.join(given)}"


def to_copy(text: str) -> Text:
    """A line with a command, or an extra spec; it is to be copied, so it is not broken between two lines."""
    return Text(f"  {text}", style="green", no_wrap=True, overflow="ignore")


def count(ways: int, part: Part = "") -> str:
    """So many ways, and what they are for."""
    return f"{ways} {'way' if ways == 1 else 'ways'}{f' for {part}' if part else ''}"


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
