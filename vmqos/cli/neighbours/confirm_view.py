# SPDX-License-Identifier: Apache-2.0
"""What a trial looks like: the question before it, its progress, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

from rich.console import Group, RenderableType
from rich.text import Text

from vmqos.cli.neighbours.confirm import Parties, Tried
from vmqos.cli.show import tables
from vmqos.cli.show.progress_bar import PhaseBar
from vmqos.cli.show.safe_text import display_name, neutralise
from vmqos.cli.show.terminal import Terminal, wrapped
from vmqos.insight import say
from vmqos.insight.trial import PHASES, Verdict

TITLES = ("Figure", "Before", "During", "After")

STATUSES = {Verdict.CONFIRMED: 0, Verdict.NOT_CONFIRMED: 4, Verdict.UNCLEAR: 5}
"""The exit statuses."""

_STYLES = {Verdict.CONFIRMED: "bold yellow", Verdict.NOT_CONFIRMED: "bold", Verdict.UNCLEAR: "bold"}

_LABELS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "cycles_per_instruction": ("Cycles for an instruction", lambda value: f"{value:.2f}"),
    "misses_per_instruction": ("Misses in 1 000 instructions", lambda value: f"{1000 * value:.2f}"),
    "traffic": ("Traffic with memory", say.bandwidth),
    "held": ("Held of the cache", say.size),
    "traffic_of_culprit": ("Traffic of {culprit}", say.bandwidth),
    "held_of_culprit": ("Held by {culprit}", say.size),
}


class Progress(PhaseBar):
    """Tells on standard error how far it is: in a terminal by a bar, elsewhere by a line for each phase.

    :param seconds: how long each phase takes.
    """

    def __init__(self, stream: TextIO, seconds: float, parties: Parties) -> None:
        super().__init__(stream, len(PHASES) * seconds)
        self._seconds = seconds
        name = display_name(parties.culprit)
        meanwhile = f"{name} is {'confined' if parties.is_confined else 'limited'}"
        self._doing = dict(zip(PHASES, ("before the trial", meanwhile, "after the trial"), strict=True))

    def report(self, phase: str, passed: float) -> None:
        """Show the phase, and how many seconds of it have passed."""
        done = PHASES.index(phase) * self._seconds + min(passed, self._seconds)
        self.show(self._doing[phase], done, len(PHASES) * self._seconds - done)


def question(parties: Parties, seconds: float) -> str:
    """What will be done, in sentences."""
    victim, culprit = display_name(parties.victim), display_name(parties.culprit)
    who, limit = f"{culprit} ({neutralise(parties.culprit['uuid'])})", parties.limit.partition("=")[2]
    if parties.is_confined:
        ways = _ways(sum(int(spec.partition("=")[2]) for spec in parties.limit.split()))
        done = (
            f"{who} will fill {ways} of the cache, which no other VM fills, and none besides, for this host can't "
            "limit memory bandwidth"
        )
    else:
        done = f"the memory bandwidth of {who} will be limited to {limit} {parties.unit}"
    return (
        f"For {seconds:g} s, {done}. {victim} is measured for {seconds:g} s before that, meanwhile, and after. No VM "
        "gets less than its flavor promises, and everything is put back, however this command ends.\n"
    )


def fields(tried: Tried) -> dict[str, Any]:
    """What came of it, for programs; what is not known is ``None``."""
    parties, outcome = tried.parties, tried.outcome
    return {
        "victim": parties.victim["uuid"],
        "culprit": parties.culprit["uuid"],
        "cause": parties.cause.value if parties.cause is not None else None,
        "limit": tried.limit,
        "unit": parties.unit,
        "seconds": tried.seconds,
        "verdict": outcome.verdict.value,
        "reason": outcome.reason,
        "faster": _known(outcome.faster),
        "figures": [
            {"figure": one.name, **{phase: _known(getattr(one, phase)) for phase in PHASES}} for one in outcome.figures
        ],
    }


def rows(tried: Tried) -> list[tuple[Any, ...]]:
    """The cells of :data:`TITLES` for scripts, a row for each figure."""
    return [(one.name, *(_known(getattr(one, phase)) for phase in PHASES)) for one in tried.outcome.figures]


def draw(tried: Tried, screen: Terminal) -> RenderableType:
    """A sentence, the figures, and why."""
    table = tables.draw(TITLES, list(_rows(tried)), screen, screen.room)
    return Group(*wrapped(_sentences(tried), screen, 0), Text(), table)


def _sentences(tried: Tried) -> Iterator[Text]:
    outcome = tried.outcome
    victim, culprit = display_name(tried.parties.victim), display_name(tried.parties.culprit)
    said = {
        Verdict.CONFIRMED: f"Confirmed: {culprit} slows {victim}.",
        Verdict.NOT_CONFIRMED: f"Not confirmed: {victim} fared no better while {culprit} was held back.",
        Verdict.UNCLEAR: f"It can't be told whether {culprit} slows {victim}.",
    }
    yield Text(said[outcome.verdict], style=_STYLES[outcome.verdict])
    yield Text(f"{neutralise(outcome.reason[:1].upper() + outcome.reason[1:])}.")
    if outcome.verdict is Verdict.CONFIRMED:
        yield Text(f"That is better by a factor of {outcome.faster:.1f} or more.")
    if tried.parties.is_confined and outcome.verdict is not Verdict.CONFIRMED:
        yield Text("That is about the cache alone: whether it takes memory's bandwidth was not tried.")
    yield Text(
        f"{culprit} {_held_back(tried)} for {tried.seconds:g} s, and has what it had before again.",
        style="dim",
    )


def _ways(number: int) -> str:
    return "1 way" if number == 1 else f"{number} ways"


def _held_back(tried: Tried) -> str:
    if tried.parties.is_confined:
        return f"filled {_ways(tried.limit)} alone, and no others,"
    return f"was limited to {tried.limit} {tried.parties.unit} of memory bandwidth"


def _rows(tried: Tried) -> Iterator[tuple[str, ...]]:
    for one in tried.outcome.figures:
        label, show = _LABELS[one.name]
        values = [getattr(one, phase) for phase in PHASES]
        if not all(map(math.isnan, values)):
            name = label.format(culprit=display_name(tried.parties.culprit))
            yield (name, *(_shown(value, show) for value in values))


def _shown(value: float, show: Callable[[float], str]) -> str:
    return "-" if math.isnan(value) else show(value)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
