# SPDX-License-Identifier: Apache-2.0
"""What sizing a VM looks like: the question before it, its progress, the curve, and what to do."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Group, RenderableType
from rich.text import Text

from vmqos.cli.show import units
from vmqos.cli.show.progress_bar import PhaseBar
from vmqos.cli.show.safe_text import display_name, neutralise
from vmqos.cli.show.terminal import Terminal, wrapped
from vmqos.cli.size.stepping import LONGEST, SPEC, Room, Sized
from vmqos.insight.flavor_size import FlavorSize
from vmqos.insight.size import ENOUGH, Point, Size

KNOWN, CHANGED, GUESSED = 0, 4, 5
"""The exit statuses: the misses were counted; the VM did other work meanwhile; its traffic had to do for its misses."""

FEWER = "Whether fewer would do is not known: no VM is tried with less than its flavor promises."

_LEAST_BAR = 10
_WIDEST = 100
_NO_FLAVOR = "FLAVOR"


class Progress(PhaseBar):
    """Tells on standard error how far it is: in a terminal by a bar, elsewhere by a line for each number of ways."""

    def __init__(self, stream: TextIO, room: Room) -> None:
        super().__init__(stream, room.most - room.base + 1)
        self._room = room

    def report(self, ways: int, part: float) -> None:
        """Show with how many ways the VM is watched, and which part of the longest time for that has passed."""
        self.show(f"{display_name(self._room.vm)} with {_count(ways)}", ways - self._room.base + part)


def question(room: Room) -> str:
    """What will be done, in sentences."""
    name, last = display_name(room.vm), f"{room.most}, one way after the other"
    return (
        f"{name} ({neutralise(room.vm['uuid'])}) will have more than its {_count(room.base)}: up to {last}, for "
        f"{LONGEST / 60:g} minutes at most in all. They are taken from those that are free. No VM gets less than its "
        "flavor promises, and the ways are given back, however this command ends.\n"
    )


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
        "more": found.knee - room.base,
        "free": room.free,
        "tried": sized.tried,
        "ended": sized.ended,
        "counted": found.is_counted,
        "steady": found.is_steady,
        "extra_spec": SPEC.format(ways=found.knee),
        "command": command(room.vm["flavor"], found.knee),
        "seconds": sized.seconds,
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


def needs(name: str, base: int, found: Size | FlavorSize, who: str) -> Iterator[Text]:
    """How many ways a VM or a flavor needs, and how far that is to be trusted.

    :param base: how many it has.
    :param who: whose work changed, if it did.
    """
    if found.knee == base:
        told = f"{name} needs no more than the {_count(base)} that it has."
    else:
        told = f"{name} needs {_count(found.knee)}{' at least' if found.is_least else ''}."
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
    of_what = "of its references" if found.is_counted else f"of its traffic with {_count(room.base)}"
    yield from needs(display_name(room.vm), room.base, found, "the VM")
    parts = {ways: f"{100 * found.curve[ways]:.1f} %" for ways in (found.knee, sized.tried)}
    beside = f", and {parts[sized.tried]} with {sized.tried}" if sized.tried != found.knee else ""
    yield Text(f"With {_count(found.knee)} it {does(found)} {parts[found.knee]} {of_what}{beside}.")
    if found.is_least:
        yield Text(f"The last way spared it more than {100 * ENOUGH:g} of 100, and no further one was tried.")
    if sized.ended:
        yield Text(f"No more than {_count(sized.tried)} were tried: {neutralise(sized.ended)}.")


def _curve(sized: Sized, screen: Terminal) -> list[Text]:
    """A bar for each number of ways: what it misses, or moves."""
    found = sized.found
    titles = ("Ways", "Misses" if found.is_counted else "Traffic")
    most = max(found.curve.values())
    rows = [(str(one.ways), found.curve[one.ways], _value(sized, one)) for one in sized.points]
    longest = max(len(value) for _, _, value in rows)
    room = max(min(screen.width, _WIDEST) - len(titles[0]) - longest - 8, _LEAST_BAR)
    block, here = screen.glyph("█", "#"), screen.glyph("◀", "<")
    lines = [Text(f"{titles[0]}  {titles[1]}", style="dim")]
    for ways, value, told in rows:
        is_knee = int(ways) == found.knee
        bar = block * (max(1, round(value / most * room)) if value else 0)
        lines.append(
            Text.assemble(
                (f"{ways:>{len(titles[0])}}", "bold" if is_knee else ""),
                "  ",
                (f"{bar:<{room}}", "green" if int(ways) >= found.knee else "yellow"),
                f"  {told:<{longest}}",
                (f" {here}" if is_knee else "", "bold"),
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
    found, room = sized.found, sized.room
    more = found.knee - room.base
    if more:
        caches = "each L3 cache that it runs on" if len(room.vm["masks"]) > 1 else "its L3 cache"
        lines = [
            f"That costs {more} more {'way' if more == 1 else 'ways'} on {caches}, of {room.free} that are free now.",
            "It gets them once it is resized to a flavor with them:",
        ]
    else:
        stay = "1 way stays" if room.free == 1 else f"{room.free} ways stay"
        lines = [
            f"More would bring it little: {stay} free for others. {FEWER}",
            "The extra spec that it needs, and has:",
        ]
    yield from wrapped(map(Text, lines), screen, 0)
    yield to_copy(command(room.vm["flavor"], found.knee))
    yield Text(f"After {units.duration(sized.seconds)}, it has its {_count(room.base)} again.", style="dim")


def does(found: Size) -> str:
    """What the curve of a VM is about."""
    return "misses" if found.is_counted else "moves"


def command(flavor: str, ways: int) -> str:
    """What gives a flavor so many ways."""
    return f"openstack flavor set --property {SPEC.format(ways=ways)} {shlex.quote(neutralise(flavor) or _NO_FLAVOR)}"


def to_copy(text: str) -> Text:
    """A line with a command; it is to be copied, so it is not broken between two lines."""
    return Text(f"  {text}", style="green", no_wrap=True, overflow="ignore")


def _count(ways: int) -> str:
    return f"{ways} {'way' if ways == 1 else 'ways'}"


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
