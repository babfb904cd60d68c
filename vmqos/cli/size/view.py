# SPDX-License-Identifier: Apache-2.0
"""What sizing a VM looks like: the question before it, its progress, the curve, and what to do."""

from __future__ import annotations

import logging
import math
import shlex
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.text import Text

from vmqos.cli.show import units
from vmqos.cli.show.safe_text import display_name, neutralise
from vmqos.cli.show.terminal import Terminal, wrapped
from vmqos.cli.size.stepping import LONGEST, SPEC, Room, Sized
from vmqos.insight.size import ENOUGH, Point

KNOWN, CHANGED, GUESSED = 0, 4, 5
"""The exit statuses: the misses were counted; the VM did other work meanwhile; its traffic had to do for its misses."""

_LEAST_BAR = 10
_WIDEST = 100
_NO_FLAVOR = "FLAVOR"


class Progress:
    """Tells on standard error how far it is: in a terminal by a bar, elsewhere by a line for each number of ways."""

    def __init__(self, stream: TextIO, room: Room) -> None:
        # Imported here: most calls of the command show no progress.
        from rich.progress import Progress as Bar

        self._stream = stream
        self._room = room
        self._ways = 0
        hidden = not stream.isatty()
        # A console that is quiet too: some versions of rich end a bar that was never shown with an empty line.
        self._bar = Bar(console=Console(file=stream, quiet=hidden), transient=True, disable=hidden)
        self._is_plain = hidden
        self._task = self._bar.add_task("", total=room.most - room.base + 1)

    def __enter__(self) -> Progress:
        self._bar.start()
        # rich has put a stream of its own in the place of standard error: what is logged there goes above the bar.
        self._log_to(self._stream, sys.stderr)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log_to(sys.stderr, self._stream)
        self._bar.stop()

    @staticmethod
    def _log_to(before: TextIO, now: TextIO) -> None:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                handler.setStream(now)

    def report(self, ways: int, part: float) -> None:
        """Show with how many ways the VM is watched, and which part of the longest time for that has passed."""
        text = f"{display_name(self._room.vm)} with {_count(ways)}"
        if ways != self._ways and self._is_plain:
            self._stream.write(f"{text} ...\n")
            self._stream.flush()
        self._ways = ways
        self._bar.update(self._task, completed=ways - self._room.base + part, description=escape(text))


def question(room: Room) -> str:
    """What will be done, in sentences."""
    name, last = display_name(room.vm), f"{room.most}, one way after the other"
    return (
        f"{name} ({neutralise(room.vm['uuid'])}) will have more than its {_count(room.base)}: up to {last}, for "
        f"{LONGEST / 60:g} minutes at most in all. They are taken from those that are free. No VM gets less than its "
        "flavor promises, and the ways are given back, however this command ends.\n"
    )


def status(sized: Sized) -> int:
    """The exit status."""
    if not sized.found.is_counted:
        return GUESSED
    return KNOWN if sized.found.is_steady else CHANGED


def fields(sized: Sized) -> dict[str, Any]:
    """What came of it, for programs; what is not known is ``None``."""
    found, room = sized.found, sized.room
    return {
        "vm": room.vm["uuid"],
        "ways": found.knee,
        "at_least": sized.is_least,
        "has": room.base,
        "more": found.knee - room.base,
        "free": room.free,
        "tried": sized.tried,
        "ended": sized.ended,
        "counted": found.is_counted,
        "steady": found.is_steady,
        "extra_spec": SPEC.format(ways=found.knee),
        "command": _command(sized),
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


def draw(sized: Sized, screen: Terminal) -> RenderableType:
    """How many ways it needs, the curve, and what to do."""
    return Group(*wrapped(_verdict(sized), screen, 0), Text(), *_curve(sized, screen), Text(), *_advice(sized, screen))


def _verdict(sized: Sized) -> Iterator[Text]:
    found, room, name = sized.found, sized.room, display_name(sized.room.vm)
    of_what = "of its references" if found.is_counted else f"of its traffic with {_count(room.base)}"
    if found.knee == room.base:
        needs = f"{name} needs no more than the {_count(room.base)} that it has."
    else:
        needs = f"{name} needs {_count(found.knee)}{' at least' if sized.is_least else ''}."
    if found.is_counted:
        yield Text(needs, style="bold")
    else:
        yield Text(f"A guess: {needs}", style="bold yellow")
        yield Text(
            "Nothing counts its misses of the L3 here, so its traffic with memory stands for them. That says where the "
            "curve falls, and not how near to 0 it is."
        )
    if not found.is_steady:
        yield Text(
            "Do not trust this: the VM did other work meanwhile. Its references to the cache for each instruction "
            "changed. Try again while it does the same all the time.",
            style="bold yellow",
        )
    parts = {ways: f"{100 * found.curve[ways]:.1f} %" for ways in (found.knee, sized.tried)}
    beside = f", and {parts[sized.tried]} with {sized.tried}" if sized.tried != found.knee else ""
    measure = "misses" if found.is_counted else "moves"
    yield Text(f"With {_count(found.knee)} it {measure} {parts[found.knee]} {of_what}{beside}.")
    if sized.is_least:
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
            f"More would bring it little: {stay} free for others. Whether fewer would do is not known: no VM is tried "
            "with less than its flavor promises.",
            "The extra spec that it needs, and has:",
        ]
    yield from wrapped(map(Text, lines), screen, 0)
    # A command is to be copied, so it is not broken between two lines.
    yield Text(f"  {_command(sized)}", style="green", no_wrap=True, overflow="ignore")
    yield Text(f"After {units.duration(sized.seconds)}, it has its {_count(room.base)} again.", style="dim")


def _command(sized: Sized) -> str:
    flavor = shlex.quote(neutralise(sized.room.vm["flavor"]) or _NO_FLAVOR)
    return f"openstack flavor set --property {SPEC.format(ways=sized.found.knee)} {flavor}"


def _count(ways: int) -> str:
    return f"{ways} {'way' if ways == 1 else 'ways'}"


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
