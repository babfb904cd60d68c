# SPDX-License-Identifier: Apache-2.0
"""What is true of a mix: the same accesses are run again without a VM, or without what it was planted for.

*Harmed.*  Of the instructions that a VM executed in some seconds, each took so many cycles; without the culprit the
same seconds' instructions would have taken fewer. It is harmed if it took more than 10 % more.

*Cause.*  The misses that the VM had more than without the culprit would have cost so much at an idle memory: that was
done in the cache. What it waited beyond that, it waited for the channel. Where two thirds of the harm or more were
done in the cache, the cause is the cache; where a third or less, it is the channel; in between both answers are
right.

*Quiet.*  A mix is quiet if in no five seconds any VM is harmed by any one other VM that does not do anything for the
whole time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.worth.neighbours.machine import Run, Runner, run
from tests.worth.neighbours.mixes import Mix

HARMED = 1.10
CLEAR = 2 / 3
WINDOW = 5
"""Seconds for which a harm has to last: insight needs four samples, and says of these that they are slower."""
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


def harm(mix: Mix, with_it: Run, without: Run, vm: int, seconds: Iterable[int]) -> Harm:
    """What was done to a VM in these seconds."""
    cycles = expected = in_the_cache = 0.0
    for second in seconds:
        here, there = with_it.vms[vm][second], without.vms[vm][second]
        if not (here.instructions and there.instructions):
            continue
        cycles += here.cycles
        expected += here.instructions * there.cycles / there.instructions
        more = here.llc_misses - here.instructions * there.llc_misses / there.instructions
        in_the_cache += more * mix.hardware.miss_cycles / mix.work(vm, second).load.overlap
    factor = cycles / expected if expected else 1.0
    return Harm(factor, causes(in_the_cache / (cycles - expected) if cycles > expected else 0.0))


def causes(part: float) -> frozenset[str]:
    """Which answers are right of a harm, this part of which was done in the cache."""
    if part >= CLEAR:
        return frozenset({CACHE})
    return frozenset({BANDWIDTH}) if part <= 1 - CLEAR else frozenset({CACHE, BANDWIDTH})


def harm_done(mix: Mix, within: int, runner: Runner = run) -> dict[int, Harm]:
    """By victim, what the planted culprit does in the ``within`` seconds after its onset; only of those harmed."""
    return harmed(done_by_planted(mix, runner(mix), runner(mix, planted=False), within))


def done_by_planted(mix: Mix, with_it: Run, without: Run, within: int) -> dict[int, Harm]:
    """By VM, what the planted culprit does to it in the ``within`` seconds after its onset, be it ever so little."""
    assert mix.planted is not None
    culprit, onset = mix.planted.vm, mix.planted.onset
    seconds = [second for second in range(onset + 1, min(onset + within, mix.seconds)) if mix.planted.at_it(second)]
    return {vm: harm(mix, with_it, without, vm, seconds) for vm in range(len(mix.vms)) if vm != culprit}


def harmed(done: Mapping[int, Harm]) -> dict[int, Harm]:
    """Only those that are harmed."""
    return {vm: one for vm, one in done.items() if one.slower > HARMED}


def harm_by(
    mix: Mix, whole: Run, culprit: int, victim: int, first: int, last: int, runner: Runner = run
) -> Harm | None:
    """What any VM does to another one in the worst :data:`WINDOW` seconds of some; ``None`` if it does not harm it."""
    done = worst(mix, whole, runner(mix, absent=(culprit,)), victim, first, last)
    return done if done.slower > HARMED else None


def worst(mix: Mix, with_it: Run, without: Run, vm: int, first: int, last: int) -> Harm:
    """The greatest harm in any :data:`WINDOW` seconds between two seconds."""
    starts = range(first, max(first + 1, last - WINDOW + 1))
    windows = (range(start, min(start + WINDOW, last)) for start in starts)
    return max((harm(mix, with_it, without, vm, window) for window in windows), key=lambda one: one.slower)


def is_quiet(mix: Mix) -> bool:
    """Whether no VM is harmed by any one other.

    Runs are saved: a VM that is not harmed by all others together, for it is as fast alone, is harmed by none of them.
    """
    whole, everybody = run(mix), range(len(mix.vms))
    alone = {vm: run(mix, absent=set(everybody) - {vm}) for vm in everybody}
    suspects = [vm for vm in everybody if worst(mix, whole, alone[vm], vm, WARM, mix.seconds).slower > HARMED]
    for other in everybody if suspects else ():
        without = run(mix, absent=(other,))
        if any(worst(mix, whole, without, vm, WARM, mix.seconds).slower > HARMED for vm in suspects if vm != other):
            return False
    return True
