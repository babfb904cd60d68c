# SPDX-License-Identifier: Apache-2.0
"""The same action by several, in turns: what it costs each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.benchmarks.figures import Action, Comparison, Cost, Effort, Sample
from tests.benchmarks.instructions import Counter


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Side:
    """One who does it.

    :ivar name: who it is.
    :ivar act: does it once, and times it.
    :ivar counter: of the instructions of whoever does it; ``None`` where nobody counts them.
    :ivar rest: what is counted with the action and is no part of it.
    """

    name: str
    act: Callable[[], Sample]
    counter: Counter | None = None
    rest: Action = nothing


def compare(
    name: str,
    sides: Sequence[Side],
    effort: Effort,
    *,
    check: Action = nothing,
    undo: Action = nothing,
    goal: float | None = None,
    remark: str = "",
) -> Comparison:
    """Have each side act in turn, so that whatever else goes on disturbs all alike, and count instructions after that.

    :param sides: ours first, then the limit, then others.
    :param check: makes sure that the action had its effect: failed actions are fast.
    :param undo: takes the effect back; nobody is charged for it.
    """
    samples: dict[str, list[Sample]] = {side.name: [] for side in sides}
    for _ in range(effort.rounds):
        for side in sides:
            samples[side.name].append(side.act())
            check()
            undo()
    costs = {side.name: Cost(samples[side.name], _instructions(side, effort, undo)) for side in sides}
    return Comparison(name, costs, goal, remark=remark)


def _instructions(side: Side, effort: Effort, undo: Action) -> float | None:
    """The least of some counts: a timer's interrupt now and then is counted with whatever it interrupts."""
    if side.counter is None:
        return None
    acted: list[int] = []
    rested: list[int] = []
    deadline = time.monotonic() + effort.counting
    while len(acted) < effort.rounds or time.monotonic() < deadline:
        acted.append(side.counter.between(side.act))
        undo()
        rested.append(side.counter.between(side.rest))
    return min(acted) - min(rested)
