# SPDX-License-Identifier: Apache-2.0
"""What is true of a mix: the same accesses are run again without a VM, or without what it was planted for.

*Harmed.*  Of the instructions that a VM executed in some seconds, each took so many cycles; without the culprit the same
seconds' instructions would have taken fewer. It is harmed if it took more than 10 % more.

*Cause.*  The same is run with a memory channel that carries everything at once. What harm is left was done in the cache.
Where two thirds of the harm or more (in the logarithms of the factors) are left, the cause is the cache; where a third
or less is left, it is the channel; in between both answers are right.

*Quiet.*  A mix is quiet if in no ten seconds any VM is harmed by any one other VM that does not do anything for the
whole time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tests.worth.neighbours.machine import Run, run
from tests.worth.neighbours.mixes import Mix

HARMED = 1.10
CLEAR = 2 / 3
WINDOW = 10
WARM = 5
"""Seconds in which an empty cache fills: they are not looked at."""
CACHE, BANDWIDTH = "cache", "bandwidth"


@dataclass(frozen=True, slots=True)
class Harm:
    """What a culprit does to a victim.

    :ivar slower: by which factor the victim needs more cycles, 1.0: none.
    :ivar causes: the answers that are right.
    """

    slower: float
    causes: frozenset[str]


def slower(with_it: Run, without: Run, vm: int, seconds: Iterable[int]) -> float:
    """By which factor a VM needs more cycles for what it executed in these seconds; 1.0 if it did nothing."""
    cycles = expected = 0.0
    for second in seconds:
        here, there = with_it.vms[vm][second], without.vms[vm][second]
        if here.instructions and there.instructions:
            cycles += here.cycles
            expected += here.instructions * there.cycles / there.instructions
    return cycles / expected if expected else 1.0


def harm_done(mix: Mix, within: int) -> dict[int, Harm]:
    """By victim, what the planted culprit does in the ``within`` seconds after its onset; only of those harmed."""
    assert mix.planted is not None
    culprit, onset = mix.planted.vm, mix.planted.onset
    seconds = [second for second in range(onset + 1, min(onset + within, mix.seconds)) if mix.planted.at_it(second)]
    both = [run(mix), run(mix, planted=False)]
    factors = {vm: slower(*both, vm, seconds) for vm in range(len(mix.vms)) if vm != culprit}
    if max(factors.values()) <= HARMED:
        return {}
    endless = [run(mix, endless_memory=True), run(mix, planted=False, endless_memory=True)]
    return {
        vm: Harm(factor, causes(factor, slower(*endless, vm, seconds)))
        for vm, factor in factors.items()
        if factor > HARMED
    }


def harm_by(mix: Mix, whole: Run, culprit: int, victim: int, first: int, last: int) -> Harm | None:
    """What any VM does to another one in the worst :data:`WINDOW` seconds of some; ``None`` if it does not harm it."""
    factor = worst(whole, run(mix, absent=(culprit,)), victim, first, last)
    if factor <= HARMED:
        return None
    endless = [run(mix, endless_memory=True), run(mix, absent=(culprit,), endless_memory=True)]
    return Harm(factor, causes(factor, worst(endless[0], endless[1], victim, first, last)))


def causes(factor: float, in_the_cache: float) -> frozenset[str]:
    """Which answers are right of a harm, a part of which is done in the cache."""
    part = math.log(max(1.0, in_the_cache)) / math.log(factor)
    if part >= CLEAR:
        return frozenset({CACHE})
    return frozenset({BANDWIDTH}) if part <= 1 - CLEAR else frozenset({CACHE, BANDWIDTH})


def worst(with_it: Run, without: Run, vm: int, first: int, last: int) -> float:
    """The greatest harm in any :data:`WINDOW` seconds between two seconds."""
    starts = range(first, max(first + 1, last - WINDOW + 1))
    return max(slower(with_it, without, vm, range(start, min(start + WINDOW, last))) for start in starts)


def is_quiet(mix: Mix) -> bool:
    """Whether no VM is harmed by any one other.

    Runs are saved: a VM that is not harmed by all others together, for it is as fast alone, is harmed by none of them.
    """
    whole, everybody = run(mix), range(len(mix.vms))
    alone = {vm: run(mix, absent=set(everybody) - {vm}) for vm in everybody}
    suspects = [vm for vm in everybody if worst(whole, alone[vm], vm, WARM, mix.seconds) > HARMED]
    for other in everybody if suspects else ():
        without = run(mix, absent=(other,))
        if any(worst(whole, without, vm, WARM, mix.seconds) > HARMED for vm in suspects if vm != other):
            return False
    return True
