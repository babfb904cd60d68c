# SPDX-License-Identifier: Apache-2.0
"""What an experiment looks like: its progress, and three bars."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Group, RenderableType
from rich.text import Text

from vmqos.cli.show import terminal as terminals
from vmqos.cli.show import units
from vmqos.cli.show.safe_text import neutralise
from vmqos.cli.show.terminal import Terminal

if TYPE_CHECKING:
    from vmqos.bench.experiment import Effort
    from vmqos.bench.setting import Setting

NAMES = {"alone": "alone", "noisy": "with a noisy neighbour", "protected": "with ways of its own"}
_DOING = {
    "alone": "the victim alone",
    "noisy": "beside its neighbour",
    "protected": "beside it, with ways of its own",
    "alone_again": "alone again, to see that the host was quiet",
}
_STYLES = {"alone": "green", "noisy": "bold red", "protected": "bold cyan"}
_LEAST_BAR = 10


class Progress:
    """Tells on standard error what is going on: in a terminal by a line that changes, elsewhere by one for each phase.

    :param stream: standard error.
    :param no_color: whether it has to be plain.
    """

    def __init__(self, stream: TextIO, no_color: bool) -> None:
        self._stream = stream
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._screen = terminals.of_stream(stream, os.environ, no_color)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def announce(self, setting: Setting, effort: Effort, left: Sequence[str]) -> None:
        """Say what will be done, and to whom."""
        if setting.meaningless:
            self._line(f"The figures will mean nothing: {setting.meaningless}.")
        for name in left:
            self._line(f"Removed {name}, which an experiment left that was killed.")
        where = f"L3 cache {setting.place.cache}, {setting.loan.mask.count} of {setting.total_ways} ways"
        self._line(f"Four phases of {effort.duration:g} s on {where}; this disturbs whatever else uses it.")

    def report(self, phase: str, done: int, total: int) -> None:
        """Show how far it is."""
        if self._live:
            bar = self._screen.glyph("█", "#") * done + self._screen.glyph("░", ".") * (total - done)
            self._stream.write(f"\r\x1b[K{bar if total <= 40 else f'{done}/{total}'}  {_DOING[phase]}")
        elif not done:
            self._stream.write(f"{_DOING[phase]} ...\n")
        self._stream.flush()

    def _line(self, text: str) -> None:
        self._stream.write(f"{neutralise(text)}\n")
        self._stream.flush()


def fields(found: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """The result in one line, for ``-f value`` and ``-f shell``."""
    values = {f"{name}": phase["median"] for name, phase in found["phases"].items()}
    values |= {f"{name}_ratio": ratio for name, ratio in found["ratios"].items()}
    values |= {"unit": found["unit"], "meaningful": found["meaningful"]}
    return tuple(values), tuple(values.values())


def draw(found: Mapping[str, Any], screen: Terminal) -> RenderableType:
    """The bars, what they mean, and how reliable they are."""
    lines: list[RenderableType] = []
    if not found["meaningful"]:
        lines += [Text(_sentence(found["remarks"][0]), style="bold yellow"), Text("")]
    lines += [Text(text, style="dim") for text in _setting(found)]
    lines += [Text(""), *_bars(found, screen), Text("")]
    lines += [Text(found["verdict"] if found["meaningful"] else f"What the figures would say: {found['verdict']}")]
    lines += [Text(f"Note: {remark}.", style="yellow") for remark in found["remarks"][not found["meaningful"] :]]
    return Group(*lines)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _setting(found: Mapping[str, Any]) -> list[str]:
    cache, victim, neighbor = found["cache"], found["victim"], found["neighbor"]
    size = f", {units.size(victim['working_set_bytes'])}" if victim["working_set_bytes"] else ""
    return [
        f"L3 cache {cache['id']}, {units.size(cache['size_bytes']) or 'of unknown size'}: {found['ways']} of "
        f"{cache['ways']} ways (mask {found['mask']}) for the victim in the end",
        f"victim: {neutralise(victim['name'])}{size}, on CPU {_cpus(victim['cpus'])}; "
        f"neighbour: {neutralise(neighbor['name'])}, on CPU {_cpus(neighbor['cpus'])}",
    ]


def _cpus(cpus: Sequence[int]) -> str:
    return ",".join(map(str, cpus))


def _bars(found: Mapping[str, Any], screen: Terminal) -> list[Text]:
    longest = max(phase["median"] for name, phase in found["phases"].items() if name in NAMES)
    rows = []
    for name, title in NAMES.items():
        phase = found["phases"][name]
        ratio = "" if name == "alone" else f"  {found['ratios'][name]:.2f} x"
        spread = f"({phase['low']:.3g} to {phase['high']:.3g})"
        rows.append((name, title, f"{phase['median']:.3g} {found['unit']} {spread}{ratio}", phase["median"] / longest))
    titles = max(len(title) for _, title, _, _ in rows)
    values = max(len(value) for _, _, value, _ in rows)
    room = max(min(screen.width, 100) - titles - values - 4, _LEAST_BAR)
    block = screen.glyph("█", "#")
    return [
        Text.assemble(
            f"{title:<{titles}}  ", (f"{block * max(round(part * room), 1):<{room}}", _STYLES[name]), f"  {value}"
        )
        for name, title, value, part in rows
    ]
